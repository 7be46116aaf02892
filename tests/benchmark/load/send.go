package main

import (
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"time"
)

// sendMessages sends with window requests in flight on each connection.
func sendMessages(opts *options, rep *report) error {
	r, brokers, err := open(opts, rep)
	if err != nil {
		return err
	}
	r.work(func(index int, link *link, rec *recorder) error {
		target := brokers[index%len(brokers)]
		source := newSender(opts.group, opts.topicNames(), target.name, target.cluster, target.writers, opts.size, index)
		answered := func(f *frame, sent, now time.Time) {
			if f.code != 0 {
				r.fail(f.failure("a send was"))
				return
			}
			rec.done(sent, now, 1)
		}
		if opts.rate > 0 {
			return r.paced(link, source.frame, answered)
		}
		return link.pipeline(opts.window, func(buf []byte, opaque int) ([]byte, bool) {
			if !r.take(1) {
				return buf, false
			}
			return source.frame(buf, opaque), true
		}, answered)
	})
	return nil
}

// sender writes SEND_MESSAGE_V2 frames as the Java client does.
type sender struct {
	heads   []string // fields before the queue, by topic, in turn
	middle  string   // between queue and born time
	tail    string   // after the unique key
	unique  string   // the part of the unique keys that stays
	body    []byte
	queues  int
	counter int
	fields  []byte
	month   int64 // the start of the month in milliseconds
}

func newSender(group string, topics []string, broker, cluster string, queues, size, index int) *sender {
	heads := make([]string, len(topics))
	for i, topic := range topics {
		head := appendField(appendField(appendField(nil, "a", group), "b", topic), "c", "TBW102")
		heads[i] = string(appendField(head, "d", "4"))
	}
	tail := `\u0002WAIT\u0001true\u0002CLUSTER\u0001` + cluster + `\u0002TAGS\u0001TagA\u0002",`
	tail += `"j":"0","k":"false","m":"false","n":"` + broker + `"`
	now := time.Now().UTC()
	// The address, the process and the class loader, where a number keeps the senders apart.
	origin := []byte{127, 0, 0, 1, byte(os.Getpid() >> 8), byte(os.Getpid()), 1, 2, byte(index >> 8), byte(index)}
	return &sender{
		heads:   heads,
		middle:  `"f":"0",`,
		tail:    tail,
		unique:  strings.ToUpper(hex.EncodeToString(origin)),
		body:    text(size),
		queues:  max(1, queues),
		counter: index,
		month:   time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC).UnixMilli(),
	}
}

// text is a body of letters that hardly repeats.
func text(size int) []byte {
	body := make([]byte, size)
	state := uint32(2463534242)
	for i := range body {
		state ^= state << 13
		state ^= state >> 17
		state ^= state << 5
		body[i] = 'a' + byte(state%26)
	}
	return body
}

// frame appends the next message.
func (s *sender) frame(buf []byte, opaque int) []byte {
	s.counter++
	now := time.Now().UnixMilli()
	fields := append(s.fields[:0], s.heads[s.counter%len(s.heads)]...)
	fields = appendNumber(fields, "e", int64(s.counter%s.queues))
	fields = append(fields, s.middle...)
	fields = appendNumber(fields, "g", now)
	fields = append(fields, `"h":"0","i":"UNIQ_KEY\u0001`...)
	fields = append(fields, s.unique...)
	fields = appendHex(fields, uint64(now-s.month), 8)
	fields = appendHex(fields, uint64(s.counter), 4)
	fields = append(fields, s.tail...)
	s.fields = fields
	return appendFrame(buf, codeSendV2, opaque, fields, s.body)
}

// appendHex appends the last digits of a number in upper-case hexadecimal.
func appendHex(buf []byte, value uint64, digits int) []byte {
	const alphabet = "0123456789ABCDEF"
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		buf = append(buf, alphabet[value>>shift&15])
	}
	return buf
}

func number(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }
