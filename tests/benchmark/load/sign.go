package main

import (
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// credentials sign requests. The zero value signs nothing.
type credentials struct {
	accessKey string
	secret    []byte
}

// identity has the credentials of all connections; the environment sets them, as for the official clients of the kit.
var identity = credentials{os.Getenv("PEERS_ACCESS_KEY"), []byte(os.Getenv("PEERS_SECRET_KEY"))}

func (c credentials) digest(parts ...[]byte) []byte {
	mac := hmac.New(sha1.New, c.secret)
	for _, part := range parts {
		mac.Write(part)
	}
	return mac.Sum(nil)
}

// appendSignature appends the access key and the signature to the inside of extFields, as AclClientRPCHook does: the
// HMAC-SHA1 of all values, in the order of their names, and of the body.
func (c credentials) appendSignature(fields, body []byte) []byte {
	if c.accessKey == "" {
		return fields
	}
	if len(fields) > 0 {
		fields = append(fields, ',')
	}
	fields = withoutComma(appendField(fields, "AccessKey", c.accessKey))
	values := map[string]string{}
	if err := json.Unmarshal(slices.Concat([]byte("{"), fields, []byte("}")), &values); err != nil {
		panic(fmt.Sprintf("malformed ext fields %q: %v", fields, err))
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var content strings.Builder
	for _, name := range names {
		content.WriteString(values[name])
	}
	signature := base64.StdEncoding.EncodeToString(c.digest([]byte(content.String()), body))
	return withoutComma(appendField(append(fields, ','), "Signature", signature))
}

// authorization is the header of a gRPC client that signs this time; empty without credentials.
func (c credentials) authorization(dateTime string) string {
	if c.accessKey == "" {
		return ""
	}
	return fmt.Sprintf("MQv2-HMAC-SHA1 Credential=%s//Rocketmq, SignedHeaders=x-mq-date-time, Signature=%s",
		c.accessKey, strings.ToUpper(hex.EncodeToString(c.digest([]byte(dateTime)))))
}
