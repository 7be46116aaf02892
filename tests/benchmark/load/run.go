package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// So many errors end a run: what follows would not say more.
const tooManyErrors = 100

const (
	sharedHistograms = 16
	bufferSize       = 16 << 10
)

// secure makes all connections TLS; the server's certificate is not verified.
var secure bool

// tlsConfig is that of all TLS connections.
var tlsConfig = &tls.Config{InsecureSkipVerify: true}

func connect(address string, timeout time.Duration) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: timeout}
	if secure {
		return tls.DialWithDialer(dialer, "tcp", address, tlsConfig)
	}
	return dialer.Dial("tcp", address)
}

// run is one load: its limits, its connections and what its workers record.
type run struct {
	opts    *options
	report  *report
	links   []*link     // connections of the remoting loads
	closers []io.Closer // every connection
	ctx     context.Context
	stop    context.CancelFunc // ends what waits for messages, and lets nothing new begin
	begun   time.Time
	from    time.Time // what is sent before is warm-up
	until   time.Time // zero without a time limit
	left    atomic.Int64
	// With a rate: messages claimed so far.
	arrivals atomic.Int64
	closed   atomic.Bool
}

func newRun(opts *options, rep *report) *run {
	r := &run{opts: opts, report: rep}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// stopped is true when nothing new may begin.
func (r *run) stopped() bool { return r.ctx.Err() != nil }

// recorder collects the measurements of one worker.
type recorder struct {
	run       *run
	latencies *histogram
	messages  int64
	all       atomic.Int64
	last      time.Time
}

// done records the answer to one request, which carried or brought so many messages.
func (r *recorder) done(sent, now time.Time, messages int) {
	r.all.Add(int64(messages))
	r.last = now
	if sent.Before(r.run.from) {
		return
	}
	// The slowest answers come after the end; leaving out their latencies would flatter the server.
	r.latencies.record(now.Sub(sent))
	if r.run.until.IsZero() || !now.After(r.run.until) {
		r.messages += int64(messages)
	}
}

// open gets the route and dials the connections, spread over the brokers.
func open(opts *options, rep *report) (*run, []broker, error) {
	brokers, err := route(opts)
	if err != nil {
		return nil, nil, err
	}
	r := newRun(opts, rep)
	for i := range opts.connections {
		link, err := dial(brokers[i%len(brokers)].address, opts.window)
		if err != nil {
			r.close()
			return nil, nil, err
		}
		r.links = append(r.links, link)
		r.closers = append(r.closers, link.conn)
	}
	return r, brokers, nil
}

func (r *run) close() {
	if !r.closed.Swap(true) {
		r.stop()
		var closing sync.WaitGroup
		for _, one := range r.closers {
			closing.Go(func() { one.Close() })
		}
		closing.Wait()
	}
}

// work runs one worker per connection until the limits are reached.
func (r *run) work(worker func(index int, link *link, rec *recorder) error) {
	workers := make([]func(*recorder) error, len(r.links))
	for i, link := range r.links {
		workers[i] = func(rec *recorder) error { return worker(i, link, rec) }
	}
	r.workAll(workers)
}

// workAll runs the workers until the limits are reached, then reports what their recorders hold.
func (r *run) workAll(workers []func(*recorder) error) {
	r.left.Store(r.opts.messages)
	r.begun = time.Now()
	cpu := ownCPU()
	r.from = r.begun.Add(r.opts.warmup)
	if r.opts.duration > 0 {
		r.until = r.from.Add(r.opts.duration)
		defer time.AfterFunc(time.Until(r.until), r.stop).Stop()
	}
	recorders := r.recorders(len(workers))
	finished := make(chan struct{})
	go r.watch(recorders, finished)
	var running sync.WaitGroup
	for i, worker := range workers {
		running.Go(func() {
			if err := worker(recorders[i]); err != nil && !r.closed.Load() {
				r.fail(err.Error())
			}
		})
	}
	running.Wait()
	close(finished)
	r.close()
	r.report.CPUSeconds = (ownCPU() - cpu).Seconds()
	r.summarise(recorders)
}

// recorders makes those of the workers. A histogram is large, so that many workers share few.
func (r *run) recorders(number int) []*recorder {
	shared := make([]*histogram, min(number, sharedHistograms))
	for i := range shared {
		shared[i] = newHistogram()
	}
	found := make([]*recorder, number)
	for i := range found {
		found[i] = &recorder{run: r, latencies: shared[i%len(shared)]}
	}
	return found
}

// watch ends the run when no answer comes any more.
func (r *run) watch(recorders []*recorder, finished <-chan struct{}) {
	var before int64
	since := time.Now()
	for {
		select {
		case <-finished:
			return
		case <-time.After(200 * time.Millisecond):
		}
		var now int64
		for _, rec := range recorders {
			now += rec.all.Load()
		}
		if now != before {
			before, since = now, time.Now()
		} else if time.Since(since) > r.opts.timeout {
			r.fail(fmt.Sprintf("no answer within %v", r.opts.timeout))
			r.close()
			return
		}
	}
}

// fail counts an error; too many end the run.
func (r *run) fail(text string) {
	if r.report.addError(text) >= tooManyErrors {
		r.stop()
	}
}

// take claims messages to send or receive; false means that the run ends.
func (r *run) take(messages int) bool {
	if r.stopped() {
		return false
	}
	return r.opts.messages == 0 || r.left.Add(-int64(messages)) >= 0
}

func (r *run) summarise(recorders []*recorder) {
	var latencies []*histogram
	last := r.from
	for _, rec := range recorders {
		latencies = append(latencies, rec.latencies)
		r.report.Messages += rec.messages
		r.report.AllMessages += rec.all.Load()
		if rec.last.After(last) {
			last = rec.last
		}
	}
	if !r.until.IsZero() && last.After(r.until) {
		last = r.until
	}
	r.report.Latency = merged(latencies...).latency()
	if r.report.Seconds = last.Sub(r.from).Seconds(); r.report.Seconds > 0 {
		r.report.PerSecond = float64(r.report.Messages) / r.report.Seconds
	}
}

// link is a connection with its requests in flight.
type link struct {
	conn   net.Conn
	reader *frameReader
	out    []byte
	slots  []slot
	free   []int
}

// slot is a place for a request in flight; opaque % len(slots) is its index.
type slot struct {
	opaque int
	sent   time.Time
	busy   bool
}

func dial(address string, window int) (*link, error) {
	conn, err := connect(address, 20*time.Second)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, reader: newFrameReader(conn, bufferSize), slots: make([]slot, window)}
	for i := range l.slots {
		l.slots[i].opaque = i
		l.free = append(l.free, i)
	}
	return l, nil
}

func (l *link) inFlight() int { return len(l.slots) - len(l.free) }

// pipeline keeps up to window requests in flight until next has no more and all are answered.
// The frame given to answered is valid during the call only.
func (l *link) pipeline(
	window int,
	next func(buf []byte, opaque int) ([]byte, bool),
	answered func(f *frame, sent, now time.Time),
) error {
	for more := true; ; {
		l.out = l.out[:0]
		for more && l.inFlight() < min(window, len(l.slots)) {
			index := l.free[len(l.free)-1]
			place := &l.slots[index]
			if l.out, more = next(l.out, place.opaque); more {
				l.free = l.free[:len(l.free)-1]
				place.busy, place.sent = true, time.Now()
			}
		}
		if len(l.out) > 0 {
			if _, err := l.conn.Write(l.out); err != nil {
				return err
			}
		}
		if l.inFlight() == 0 {
			return nil
		}
		if err := l.receive(answered); err != nil {
			return err
		}
	}
}

// receive waits for one answer and takes all that have come with it.
func (l *link) receive(answered func(f *frame, sent, now time.Time)) error {
	var f frame
	for waiting := true; waiting || l.inFlight() > 0 && l.reader.buffered(); {
		if err := l.reader.read(&f); err != nil {
			return err
		}
		if !f.isResponse() {
			continue // a notice of the server's own
		}
		now := time.Now()
		place := l.find(f.opaque)
		if place == nil {
			return fmt.Errorf("an answer to no request, opaque %d", f.opaque)
		}
		waiting = false
		place.busy = false
		place.opaque += len(l.slots) // so that a second answer is noticed
		l.free = append(l.free, f.opaque%len(l.slots))
		answered(&f, place.sent, now)
	}
	return nil
}

// find returns the request in flight with this opaque.
func (l *link) find(opaque int) *slot {
	if opaque < 0 {
		return nil
	}
	if place := &l.slots[opaque%len(l.slots)]; place.busy && place.opaque == opaque {
		return place
	}
	return nil
}

// call makes one request and waits for its answer.
func (l *link) call(code int, fields, body []byte, answered func(f *frame, sent, now time.Time)) error {
	sent := false
	return l.pipeline(1, func(buf []byte, opaque int) ([]byte, bool) {
		if sent {
			return buf, false
		}
		sent = true
		return appendFrame(buf, code, opaque, fields, body), true
	}, answered)
}
