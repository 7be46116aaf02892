package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// So many clients join at a time.
const joiners = 32

// grpcSend sends with window requests in flight on each connection.
func grpcSend(opts *options, rep *report) error {
	r := newRun(opts, rep)
	defer r.close()
	source := newSource(opts)
	var workers []func(*recorder) error
	producers, err := r.joinProducers(opts.connections)
	if err != nil {
		return err
	}
	for i, m := range producers {
		for lane := range opts.window {
			group := ""
			if opts.operation == "grpc-send-fifo" {
				group = fmt.Sprintf("group-%d-%d", i, lane)
			}
			workers = append(workers, func(rec *recorder) error { return r.produce(m, source, rec, 1, group) })
		}
	}
	r.workAll(workers)
	return nil
}

// join adds a client to the run.
func (r *run) join(index int, kind v2.ClientType) (*member, error) {
	m, err := join(r.opts, index, kind)
	if err == nil {
		r.closers = append(r.closers, m)
	}
	return m, err
}

// joinProducers adds producers, several at a time.
func (r *run) joinProducers(number int) ([]*member, error) {
	found, failures := make([]*member, number), make([]error, number)
	places := make(chan struct{}, joiners)
	var joining sync.WaitGroup
	for i := range number {
		places <- struct{}{}
		joining.Go(func() {
			found[i], failures[i] = join(r.opts, i, v2.ClientType_PRODUCER)
			<-places
		})
	}
	joining.Wait()
	for _, m := range found {
		if m != nil {
			r.closers = append(r.closers, m)
		}
	}
	return found, errors.Join(failures...)
}

// produce sends one message after the other, in order if there is a message group; each counts as so many of the report's
// messages.
func (r *run) produce(m *member, source *source, rec *recorder, counts int, group string) error {
	for {
		sent, more := r.next()
		if !more {
			return nil
		}
		if err := m.send(source.message(time.Now(), group)); err != nil {
			r.fail(err.Error())
			continue
		}
		rec.done(sent, time.Now(), counts)
	}
}

func (m *member) send(message *v2.Message) error {
	ctx, done := m.call()
	defer done()
	answer, err := m.stub.SendMessage(ctx, &v2.SendMessageRequest{Messages: []*v2.Message{message}})
	if err := outcome("a send", answer, err); err != nil {
		return err
	}
	if entries := answer.GetEntries(); len(entries) != 1 {
		return &refusal{"a send", answer.GetStatus().GetCode(), "without its entry"}
	}
	return outcome("a message", answer.GetEntries()[0], nil)
}

// source makes messages as the Go client does.
type source struct {
	topics  []*v2.Resource // in turn
	host    string
	tag     string
	body    []byte
	origin  string // the beginning of all message ids: version, address, process
	counter atomic.Uint32
}

// Message ids hold the seconds since 2021.
var idEpoch = time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

func newSource(opts *options) *source {
	s := &source{tag: "TagA", body: text(opts.size)}
	for _, name := range opts.topicNames() {
		s.topics = append(s.topics, &v2.Resource{Name: name})
	}
	s.host, _ = os.Hostname()
	// A random address keeps runs apart.
	origin := binary.BigEndian.AppendUint64([]byte{1}, rand.Uint64())
	binary.BigEndian.PutUint16(origin[7:], uint16(os.Getpid()))
	s.origin = upperHex(origin)
	return s
}

func (s *source) message(now time.Time, group string) *v2.Message {
	number := s.counter.Add(1)
	message := &v2.Message{
		Topic: s.topics[int(number)%len(s.topics)],
		SystemProperties: &v2.SystemProperties{
			Tag:           &s.tag,
			MessageId:     s.id(now, number),
			BornTimestamp: timestamppb.New(now),
			BornHost:      s.host,
			BodyEncoding:  v2.Encoding_IDENTITY,
			MessageType:   v2.MessageType_NORMAL,
		},
		Body: s.body,
	}
	if group != "" {
		message.SystemProperties.MessageType, message.SystemProperties.MessageGroup = v2.MessageType_FIFO, &group
	}
	return message
}

func (s *source) id(now time.Time, number uint32) string {
	raw := binary.BigEndian.AppendUint32(make([]byte, 0, 8), uint32(now.Unix()-idEpoch))
	return s.origin + upperHex(binary.BigEndian.AppendUint32(raw, number))
}

// made is true for the ids of this source's messages.
func (s *source) made(id string) bool { return strings.HasPrefix(id, s.origin) }

func upperHex(raw []byte) string { return strings.ToUpper(hex.EncodeToString(raw)) }
