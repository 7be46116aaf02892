package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	v2 "github.com/apache/rocketmq-clients/golang/v5/protocol/v2"
	"google.golang.org/protobuf/types/known/durationpb"
)

// grpcReceive receives the stored messages and acknowledges each by a call of its own, as push
// consumers do.
func grpcReceive(opts *options, rep *report) error {
	r := newRun(opts, rep)
	defer r.close()
	kind := v2.ClientType_PUSH_CONSUMER
	if opts.operation == "grpc-simple-ack" {
		kind = v2.ClientType_SIMPLE_CONSUMER
	}
	f := newFlow(r, nil, kind)
	for i := range opts.connections {
		if err := f.consume(i); err != nil {
			return err
		}
	}
	f.run()
	return nil
}

// grpcMixed sends messages on half of the connections while the other half receives and
// acknowledges them. A message counts when it is acknowledged; latencies are those of sends and
// acknowledgements.
func grpcMixed(opts *options, rep *report) error {
	r := newRun(opts, rep)
	defer r.close()
	source := newSource(opts)
	f := newFlow(r, source, v2.ClientType_PUSH_CONSUMER)
	producers := max(1, opts.connections/2)
	for i := range max(2, opts.connections) {
		if i >= producers {
			if err := f.consume(i); err != nil {
				return err
			}
			continue
		}
		m, err := r.join(i, v2.ClientType_PRODUCER)
		if err != nil {
			return err
		}
		for range opts.window {
			f.workers = append(f.workers, func(rec *recorder) error { return r.produce(m, source, rec, 0, "") })
		}
	}
	f.run()
	return nil
}

// flow is what all consumers of a run share.
type flow struct {
	r        *run
	source   *source // whose messages count; all if there is none
	workers  []func(*recorder) error
	receives []*recorder
	received *histogram // latencies of the receives
	kind     v2.ClientType
	missing  atomic.Int64 // messages that are not acknowledged yet
}

func newFlow(r *run, source *source, kind v2.ClientType) *flow {
	f := &flow{r: r, source: source, received: newHistogram(), kind: kind}
	f.missing.Store(r.opts.messages)
	return f
}

// consume adds a push consumer: one receiver for each assignment, and window workers that acknowledge.
func (f *flow) consume(index int) error {
	m, err := f.r.join(index, f.kind)
	if err != nil {
		return err
	}
	queues, err := m.queues()
	if err != nil {
		return err
	}
	// As a push consumer's cache: a receive goes on while the batches before are worked on.
	cache := make(chan *v2.Message, 2*batchSize)
	for _, queue := range queues {
		rec := &recorder{run: f.r, latencies: f.received}
		f.receives = append(f.receives, rec)
		f.workers = append(f.workers, func(*recorder) error { return f.receive(m, queue, cache, rec) })
	}
	for range f.r.opts.window {
		f.workers = append(f.workers, func(rec *recorder) error { return f.acknowledge(m, cache, rec) })
	}
	return nil
}

func (m *member) assignments() ([]*v2.MessageQueue, error) {
	ctx, done := m.call()
	defer done()
	answer, err := m.stub.QueryAssignment(ctx, &v2.QueryAssignmentRequest{Topic: m.topic, Group: m.group, Endpoints: m.endpoints})
	if err := outcome("the assignment request", answer, err); err != nil {
		return nil, err
	}
	var queues []*v2.MessageQueue
	for _, assignment := range answer.GetAssignments() {
		queues = append(queues, assignment.GetMessageQueue())
	}
	if len(queues) == 0 {
		return nil, errors.New("no queue was assigned")
	}
	return queues, nil
}

// queues are those that a consumer receives from: a push consumer's assignments; of a simple consumer, which takes one
// after the other from the route, the next one.
func (m *member) queues() ([]*v2.MessageQueue, error) {
	if m.kind == v2.ClientType_PUSH_CONSUMER {
		return m.assignments()
	}
	ctx, done := m.call()
	defer done()
	answer, err := m.stub.QueryRoute(ctx, &v2.QueryRouteRequest{Topic: m.topic, Endpoints: m.endpoints})
	if err := outcome("the route request", answer, err); err != nil {
		return nil, err
	}
	if len(answer.GetMessageQueues()) == 0 {
		return nil, errors.New("no queue is in the route")
	}
	return answer.GetMessageQueues()[:1], nil
}

// run works until every message is acknowledged and reports the receives beside it.
func (f *flow) run() {
	f.r.workAll(f.workers)
	for _, rec := range f.receives {
		f.r.report.count("received", int(rec.all.Load()))
	}
	receives := f.received.latency()
	f.r.report.count("receives", receives.Count)
	f.r.report.count("acknowledged", int(f.r.report.AllMessages))
	f.r.report.PopLatency = &receives
}

// receive fills the cache until the run ends.
func (f *flow) receive(m *member, queue *v2.MessageQueue, cache chan<- *v2.Message, rec *recorder) error {
	for !f.r.stopped() {
		sent := time.Now()
		messages, err := m.receive(f.r.ctx, queue)
		if f.r.stopped() {
			return nil
		}
		if err != nil {
			f.r.fail(err.Error())
			continue
		}
		if len(messages) == 0 {
			continue // the long poll ended without a message
		}
		rec.done(sent, time.Now(), len(messages))
		for _, message := range messages {
			select {
			case cache <- message:
			case <-f.r.ctx.Done():
				return nil
			}
		}
	}
	return nil
}

// receive is one long poll; no message is no error.
func (m *member) receive(parent context.Context, queue *v2.MessageQueue) ([]*v2.Message, error) {
	ctx, done := context.WithTimeout(m.signed(parent), receiveDeadline)
	defer done()
	attempt := requestID()
	request := &v2.ReceiveMessageRequest{
		Group: m.group, MessageQueue: queue, FilterExpression: everything(), BatchSize: batchSize,
		AutoRenew: true, LongPollingTimeout: durationpb.New(longPolling), AttemptId: &attempt,
	}
	if m.kind == v2.ClientType_SIMPLE_CONSUMER {
		request.AutoRenew, request.InvisibleDuration = false, durationpb.New(invisible)
	}
	stream, err := m.stub.ReceiveMessage(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("a receive: %w", err)
	}
	var messages []*v2.Message
	answered := false
	for {
		answer, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && !answered:
			return nil, errors.New("a receive ended without a status")
		case errors.Is(err, io.EOF):
			return messages, nil
		case err != nil:
			return nil, fmt.Errorf("a receive: %w", err)
		}
		switch content := answer.GetContent().(type) {
		case *v2.ReceiveMessageResponse_Message:
			messages = append(messages, content.Message)
		case *v2.ReceiveMessageResponse_Status:
			answered = true
			if code := content.Status.GetCode(); code != v2.Code_OK && code != v2.Code_MESSAGE_NOT_FOUND {
				return nil, &refusal{"a receive", code, content.Status.GetMessage()}
			}
		}
	}
}

// acknowledge empties the cache until the last message ends the run.
func (f *flow) acknowledge(m *member, cache <-chan *v2.Message, rec *recorder) error {
	for {
		var message *v2.Message
		select {
		case message = <-cache:
		case <-f.r.ctx.Done():
			return nil
		}
		sent := time.Now()
		if err := m.acknowledge(message); err != nil {
			f.r.fail(err.Error())
			continue
		}
		if f.source != nil && !f.source.made(message.GetSystemProperties().GetMessageId()) {
			continue // left by a run that met errors
		}
		rec.done(sent, time.Now(), 1)
		if f.missing.Add(-1) == 0 {
			f.r.stop()
		}
	}
}

func (m *member) acknowledge(message *v2.Message) error {
	ctx, done := m.call()
	defer done()
	properties := message.GetSystemProperties()
	answer, err := m.stub.AckMessage(ctx, &v2.AckMessageRequest{
		Group: m.group, Topic: message.GetTopic(),
		Entries: []*v2.AckMessageEntry{{
			MessageId: properties.GetMessageId(), ReceiptHandle: properties.GetReceiptHandle(),
		}},
	})
	if err := outcome("an acknowledgement", answer, err); err != nil {
		return err
	}
	if entries := answer.GetEntries(); len(entries) != 1 {
		return &refusal{"an acknowledgement", answer.GetStatus().GetCode(), "without its entry"}
	}
	return outcome("an acknowledged message", answer.GetEntries()[0], nil)
}
