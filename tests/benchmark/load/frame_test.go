package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"strings"
	"testing"
)

func TestFrameSurvivesTheWire(t *testing.T) {
	fields := appendNumber(appendField(nil, "topic", "T"), "queueId", -1)
	wire := appendFrame(nil, codePop, 77, withoutComma(fields), []byte("body"))
	wire = appendFrame(wire, codeAck, 78, nil, nil)

	reader := newFrameReader(bytes.NewReader(wire), 16)
	var got frame
	if err := reader.read(&got); err != nil {
		t.Fatal(err)
	}
	if got.code != codePop || got.opaque != 77 || got.isResponse() || string(got.body) != "body" {
		t.Errorf("got %+v", got)
	}
	ext, err := got.fields()
	if err != nil || ext["topic"] != "T" || ext["queueId"] != "-1" {
		t.Errorf("fields %v, %v", ext, err)
	}
	if err := reader.read(&got); err != nil || got.code != codeAck || got.opaque != 78 || len(got.body) != 0 {
		t.Errorf("second frame %+v, %v", got, err)
	}
	if err := reader.read(&got); err != io.EOF {
		t.Errorf("after the last frame: %v", err)
	}
}

func TestHeaderIsValidJSON(t *testing.T) {
	for name, wire := range map[string][]byte{
		"send": newSender("P", []string{"T"}, "broker-a", "C", 4, 300, 3).frame(nil, 5),
		"beat": heartbeat("client", "group", "topic", 1),
	} {
		size := int(binary.BigEndian.Uint32(wire))
		header := int(binary.BigEndian.Uint32(wire[4:]))
		if size != len(wire)-4 {
			t.Errorf("%s: length %d of %d bytes", name, size, len(wire))
		}
		var decoded struct {
			Version int `json:"version"`
		}
		if err := json.Unmarshal(wire[8:8+header], &decoded); err != nil || decoded.Version != clientNumber {
			t.Errorf("%s: %s: %v", name, wire[8:8+header], err)
		}
	}
}

func TestSendCarriesProperties(t *testing.T) {
	var got frame
	if err := decodeFrame(newSender("P", []string{"T"}, "broker-a", "C", 4, 10, 3).frame(nil, 5)[4:], &got); err != nil {
		t.Fatal(err)
	}
	ext, err := got.fields()
	if err != nil {
		t.Fatal(err)
	}
	properties := map[string]string{}
	for pair := range strings.SplitSeq(strings.TrimSuffix(ext["i"], "\x02"), "\x02") {
		key, value, _ := strings.Cut(pair, "\x01")
		properties[key] = value
	}
	if len(properties["UNIQ_KEY"]) != 32 || properties["WAIT"] != "true" || properties["CLUSTER"] != "C" {
		t.Errorf("properties %q", ext["i"])
	}
	if ext["n"] != "broker-a" || len(got.body) != 10 {
		t.Errorf("broker %q, body of %d", ext["n"], len(got.body))
	}
}

func TestDecodeHeader(t *testing.T) {
	for text, want := range map[string]frame{
		`{"code":0,"flag":1,"opaque":7}`:                                        {flag: 1, opaque: 7},
		`{ "code" : 1, "remark":"a \"code\":9, }", "flag":1 }`:                  {code: 1, flag: 1, remark: []byte(`"a \"code\":9, }"`)},
		`{"extFields":{"opaque":"3","x":"}"},"opaque":-2,"list":[1,{"a":"]"}]}`: {opaque: -2, ext: []byte(`{"opaque":"3","x":"}"}`)},
		`{"remark":null,"extFields":null}`:                                      {remark: []byte("null"), ext: []byte("null")},
		`{}`:                                                                    {},
	} {
		var got frame
		if err := decodeHeader([]byte(text), &got); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got.code != want.code || got.flag != want.flag || got.opaque != want.opaque ||
			!bytes.Equal(got.remark, want.remark) || !bytes.Equal(got.ext, want.ext) {
			t.Errorf("%s: got %+v", text, got)
		}
	}
	for _, text := range []string{``, `[`, `{"code"`, `{"code":}`, `{"code":1`, `{"remark":"x`, `{"code":"x"}`} {
		if err := decodeHeader([]byte(text), &frame{}); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestDecodeFrameRefusesNonsense(t *testing.T) {
	for _, data := range [][]byte{{0}, {1, 0, 0, 0}, {0, 0, 0, 9, '{', '}'}} {
		if err := decodeFrame(data, &frame{}); err == nil {
			t.Errorf("%v was accepted", data)
		}
	}
}

func TestPoppedMessages(t *testing.T) {
	ext := map[string]string{
		"popTime": "100", "invisibleTime": "60000", "reviveQid": "3",
		"startOffsetInfo": "0 2 10;1 0 4", "msgOffsetInfo": "0 2 10,11;1 0 4",
	}
	got, err := popped(ext, "T", "G", "broker-a")
	if err != nil {
		t.Fatal(err)
	}
	want := []receipt{
		{"T", "10 100 60000 3 0 broker-a 2 10", 2, 10},
		{"T", "10 100 60000 3 0 broker-a 2 11", 2, 11},
		{"%RETRY%G_T", "4 100 60000 3 1 broker-a 0 4", 0, 4},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}
}
