package main

import (
	"fmt"
	"sync"
	"time"
)

// next claims one message and waits for its time. Without a rate this is now. With one, the times are fixed before:
// a message that is late because others wait keeps its time, so that its latency has the wait, too.
func (r *run) next() (time.Time, bool) {
	if !r.take(1) {
		return time.Time{}, false
	}
	if r.opts.rate == 0 {
		return time.Now(), true
	}
	number := r.arrivals.Add(1) - 1
	intended := r.begun.Add(time.Duration(float64(number) / r.opts.rate * float64(time.Second)))
	if !r.until.IsZero() && intended.After(r.until) {
		return time.Time{}, false
	}
	if wait := time.Until(intended); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.ctx.Done():
			return time.Time{}, false
		}
	}
	return intended, true
}

// paced sends a request at each time that this link claims, whether those before are answered or not; at most window are
// in flight.
func (r *run) paced(l *link, frame func(buf []byte, opaque int) []byte, answered func(f *frame, sent, now time.Time)) error {
	p := &pacing{link: l, places: make(chan struct{}, r.opts.window), inFlight: map[int]time.Time{}}
	written := make(chan error, 1)
	go func() { written <- p.write(r, frame) }()
	read := make(chan error, 1)
	go func() { read <- p.read(answered) }()
	select {
	case err := <-read: // the connection is broken
		return err
	case err := <-written:
		if err != nil {
			return err
		}
	}
	// All places are free when the last answer has come.
	for range r.opts.window {
		select {
		case p.places <- struct{}{}:
		case err := <-read:
			return err
		}
	}
	return nil
}

// pacing is what the writer and the reader of one paced link share.
type pacing struct {
	link     *link
	places   chan struct{}
	mutex    sync.Mutex
	inFlight map[int]time.Time
}

func (p *pacing) write(r *run, frame func(buf []byte, opaque int) []byte) error {
	var out []byte
	for opaque := 1; ; opaque++ {
		intended, more := r.next()
		if !more {
			return nil
		}
		p.places <- struct{}{}
		p.mutex.Lock()
		p.inFlight[opaque] = intended
		p.mutex.Unlock()
		out = frame(out[:0], opaque)
		if _, err := p.link.conn.Write(out); err != nil {
			return err
		}
	}
}

func (p *pacing) read(answered func(f *frame, sent, now time.Time)) error {
	var f frame
	for {
		if err := p.link.reader.read(&f); err != nil {
			return err
		}
		if !f.isResponse() {
			continue
		}
		now := time.Now()
		p.mutex.Lock()
		intended, known := p.inFlight[f.opaque]
		delete(p.inFlight, f.opaque)
		p.mutex.Unlock()
		if !known {
			return fmt.Errorf("an answer to no request, opaque %d", f.opaque)
		}
		answered(&f, intended, now)
		<-p.places
	}
}
