package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	codePull     = 11
	codeBeat     = 34
	codeRoute    = 105
	codeSendV2   = 310
	codePop      = 200050
	codeAck      = 200051
	clientNumber = 493 // the ordinal of V5_4_0: 212 + 2*(100+40+0) + 1

	responseFlag = 1
	maxFrame     = 16 << 20
)

// The end of every request header, as fastjson orders it in the Java client.
const headerTail = `,"serializeTypeCurrentRPC":"JSON","version":493}`

// appendFrame appends one frame, signed if there are credentials. fields holds the inside of extFields: `"a":"1","b":"2"`.
func appendFrame(buf []byte, code, opaque int, fields, body []byte) []byte {
	fields = identity.appendSignature(fields, body)
	start := len(buf)
	buf = append(buf, 0, 0, 0, 0, 0, 0, 0, 0)
	buf = append(buf, `{"code":`...)
	buf = strconv.AppendInt(buf, int64(code), 10)
	buf = append(buf, `,"extFields":{`...)
	buf = append(buf, fields...)
	buf = append(buf, `},"flag":0,"language":"JAVA","opaque":`...)
	buf = strconv.AppendInt(buf, int64(opaque), 10)
	buf = append(buf, headerTail...)
	header := len(buf) - start - 8
	buf = append(buf, body...)
	binary.BigEndian.PutUint32(buf[start:], uint32(4+header+len(body)))
	binary.BigEndian.PutUint32(buf[start+4:], uint32(header)) // the top byte 0 means JSON
	return buf
}

// appendField appends `"name":"value",`; the value must need no escaping.
func appendField(buf []byte, name, value string) []byte {
	buf = append(buf, '"')
	buf = append(buf, name...)
	buf = append(buf, `":"`...)
	buf = append(buf, value...)
	return append(buf, `",`...)
}

// appendNumber appends `"name":"123",`.
func appendNumber(buf []byte, name string, value int64) []byte {
	buf = append(buf, '"')
	buf = append(buf, name...)
	buf = append(buf, `":"`...)
	buf = strconv.AppendInt(buf, value, 10)
	return append(buf, `",`...)
}

// withoutComma drops the comma that appendField and appendNumber leave behind.
func withoutComma(fields []byte) []byte {
	if n := len(fields); n > 0 && fields[n-1] == ',' {
		return fields[:n-1]
	}
	return fields
}

// frame is a received command. Its slices are valid until the next read.
type frame struct {
	code   int
	opaque int
	flag   int
	remark []byte // a JSON string or null
	ext    []byte // a JSON object or null
	body   []byte
}

func (f *frame) isResponse() bool { return f.flag&responseFlag != 0 }

// fields decodes extFields.
func (f *frame) fields() (map[string]string, error) {
	found := map[string]string{}
	if len(f.ext) == 0 {
		return found, nil
	}
	return found, json.Unmarshal(f.ext, &found)
}

// failure describes an answer that was not the wanted one.
func (f *frame) failure(what string) string {
	var remark string
	if len(f.remark) > 0 {
		_ = json.Unmarshal(f.remark, &remark)
	}
	return fmt.Sprintf("%s answered with code %d: %s", what, f.code, remark)
}

// frameReader reads frames into one buffer.
type frameReader struct {
	source *bufio.Reader
	buffer []byte
}

func newFrameReader(source io.Reader, size int) *frameReader {
	return &frameReader{source: bufio.NewReaderSize(source, size)}
}

// buffered tells whether a frame has begun to arrive, so that reading it will hardly wait.
func (r *frameReader) buffered() bool { return r.source.Buffered() > 0 }

func (r *frameReader) read(f *frame) error {
	prefix, err := r.source.Peek(4)
	if err != nil {
		return err
	}
	size := int(binary.BigEndian.Uint32(prefix))
	if size < 4 || size > maxFrame-4 {
		return fmt.Errorf("a frame of %d bytes", size)
	}
	if _, err := r.source.Discard(4); err != nil {
		return err
	}
	if cap(r.buffer) < size {
		r.buffer = make([]byte, size)
	}
	data := r.buffer[:size]
	if _, err := io.ReadFull(r.source, data); err != nil {
		return err
	}
	return decodeFrame(data, f)
}

// decodeFrame decodes what follows the first length of a frame.
func decodeFrame(data []byte, f *frame) error {
	if len(data) < 4 {
		return errors.New("a frame without a header length")
	}
	word := binary.BigEndian.Uint32(data)
	header := int(word & 0xFFFFFF)
	if word>>24 != 0 {
		return fmt.Errorf("a header of type %d instead of JSON", word>>24)
	}
	if header > len(data)-4 {
		return errors.New("a header longer than its frame")
	}
	*f = frame{body: data[4+header:]}
	return decodeHeader(data[4:4+header], f)
}

// decodeHeader reads the wanted members of a JSON header without decoding the others.
func decodeHeader(text []byte, f *frame) error {
	s := scanner{text: text}
	if !s.accept('{') {
		return s.malformed()
	}
	if s.accept('}') {
		return nil
	}
	for {
		key, ok := s.value()
		if !ok || !s.accept(':') {
			return s.malformed()
		}
		value, ok := s.value()
		if !ok {
			return s.malformed()
		}
		if err := f.set(key, value); err != nil {
			return err
		}
		if s.accept('}') {
			return nil
		}
		if !s.accept(',') {
			return s.malformed()
		}
	}
}

func (f *frame) set(key, value []byte) (err error) {
	switch string(key) {
	case `"code"`:
		f.code, err = strconv.Atoi(string(value))
	case `"opaque"`:
		f.opaque, err = strconv.Atoi(string(value))
	case `"flag"`:
		f.flag, err = strconv.Atoi(string(value))
	case `"remark"`:
		f.remark = value
	case `"extFields"`:
		f.ext = value
	}
	return err
}

// scanner cuts a JSON text into values; it finds ends and does not validate.
type scanner struct {
	text []byte
	at   int
}

func (s *scanner) malformed() error {
	return fmt.Errorf("a malformed header near byte %d: %.200q", s.at, s.text)
}

func (s *scanner) skipSpace() {
	for s.at < len(s.text) && (s.text[s.at] == ' ' || s.text[s.at] == '\n' || s.text[s.at] == '\t' || s.text[s.at] == '\r') {
		s.at++
	}
}

func (s *scanner) accept(want byte) bool {
	s.skipSpace()
	if s.at < len(s.text) && s.text[s.at] == want {
		s.at++
		return true
	}
	return false
}

// value returns the next value as it is written.
func (s *scanner) value() ([]byte, bool) {
	s.skipSpace()
	start, depth := s.at, 0
	for s.at < len(s.text) {
		switch s.text[s.at] {
		case '"':
			if !s.skipString() {
				return nil, false
			}
			if depth == 0 {
				return s.text[start:s.at], true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']', ',', ':', ' ', '\n', '\t', '\r':
			if depth == 0 {
				return s.text[start:s.at], s.at > start
			}
			if c := s.text[s.at]; c == '}' || c == ']' {
				if depth--; depth == 0 {
					s.at++
					return s.text[start:s.at], true
				}
			}
		}
		s.at++
	}
	return nil, false
}

func (s *scanner) skipString() bool {
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '"':
			s.at++
			return true
		}
	}
	return false
}
