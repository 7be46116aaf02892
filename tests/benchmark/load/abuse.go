package main

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// abuser makes the frames of one connection that breaks the rules.
type abuser interface {
	frame(buf []byte, opaque int) []byte
}

// neverRead pipelines pulls and leaves the answers unread.
func neverRead(opts *options, rep *report) error {
	return abuse(opts, rep, false, func(target broker, _ int) abuser {
		head, tail := pullFields(opts, target.name)
		return &greedy{head: head, tail: tail, queues: target.readers}
	})
}

// greedy asks for the start of every queue in turn.
type greedy struct {
	head, tail, fields []byte
	queues             int
}

func (g *greedy) frame(buf []byte, opaque int) []byte {
	g.fields = append(g.fields[:0], g.head...)
	g.fields = appendNumber(g.fields, "queueId", int64(opaque%g.queues))
	g.fields = appendNumber(g.fields, "queueOffset", 0)
	g.fields = append(g.fields, g.tail...)
	return appendFrame(buf, codePull, opaque, g.fields, nil)
}

// neverWait sends messages without waiting for answers.
func neverWait(opts *options, rep *report) error {
	return abuse(opts, rep, opts.discard, func(target broker, index int) abuser {
		return newSender(opts.group, opts.topicNames(), target.name, target.cluster, target.writers, opts.size, index)
	})
}

// abuse writes as much as the server takes until the time is over. A server may well close such a
// connection; then there is a new one soon.
func abuse(opts *options, rep *report, discard bool, source func(target broker, index int) abuser) error {
	brokers, err := route(opts)
	if err != nil {
		return err
	}
	start, cpu := time.Now(), ownCPU()
	until := start.Add(opts.duration)
	var workers sync.WaitGroup
	for i := range opts.connections {
		workers.Go(func() {
			target := brokers[i%len(brokers)]
			frames := source(target, i)
			for time.Now().Before(until) {
				if err := pour(target.address, frames, until, discard, rep); err != nil {
					rep.count("closed", 1)
					time.Sleep(min(100*time.Millisecond, time.Until(until)))
				}
			}
		})
	}
	workers.Wait()
	rep.Messages = int64(rep.Counts["frames"])
	rep.AllMessages = rep.Messages
	rep.Seconds = time.Since(start).Seconds()
	rep.PerSecond = float64(rep.Messages) / rep.Seconds
	rep.CPUSeconds = (ownCPU() - cpu).Seconds()
	return nil
}

// pour writes frames into one connection until the time is over or the server closes it.
func pour(address string, frames abuser, until time.Time, discard bool, rep *report) error {
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(until); err != nil {
		return err
	}
	if discard {
		go func() { _, _ = io.Copy(io.Discard, conn) }()
	} else if err := conn.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		return err
	}
	written, bytes := 0, 0
	defer func() {
		rep.count("frames", written)
		rep.count("kilobytes", bytes>>10)
	}()
	var out []byte
	const together = 16
	for opaque := 1; ; opaque += together {
		out = out[:0]
		for i := range together {
			out = frames.frame(out, opaque+i)
		}
		n, err := conn.Write(out)
		bytes += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		written += together
	}
}
