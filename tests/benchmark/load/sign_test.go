package main

import (
	"strings"
	"testing"
)

// Both expected values are those of tests/remoting/test_signature.py's functions.
var alice = credentials{"alice", []byte("secret")}

func TestSignedFieldsAndBody(t *testing.T) {
	fields := appendField(appendField(nil, "topic", "T"), "i", `k\u0001v`)
	got := string(alice.appendSignature(withoutComma(fields), []byte("body")))
	want := `"topic":"T","i":"k\u0001v","AccessKey":"alice","Signature":"R+9kL7hpBLn7GC14qtlAt0ChnYc="`
	if got != want {
		t.Errorf("got %s", got)
	}
	if got := string(alice.appendSignature(nil, nil)); !strings.HasPrefix(got, `"AccessKey":"alice","Signature":"`) {
		t.Errorf("without fields: %s", got)
	}
}

func TestAuthorization(t *testing.T) {
	if got := alice.authorization("20260102T030405Z"); !strings.HasSuffix(got, "Signature=B8233E003C697C8C4218A6AFC2BC397A08E8F645") {
		t.Errorf("got %s", got)
	}
}

func TestNothingIsSignedWithoutCredentials(t *testing.T) {
	none := credentials{}
	if got := none.appendSignature([]byte(`"a":"1"`), nil); string(got) != `"a":"1"` || none.authorization("x") != "" {
		t.Errorf("got %s", got)
	}
}
