package main

import (
	"context"
	"fmt"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// For how long messages are received, and what that is changed to.
const (
	received = 30 * time.Second
	sooner   = 3 * time.Second
	later    = 35 * time.Second
)

// changes of the invisible duration. Of four messages, one is acknowledged at once, one asked back sooner
// and one later, and one acknowledged by the receipt handle that the change gave.
type changes struct {
	consumer rmq.SimpleConsumer
	since    map[int]time.Time
}

func (c *changes) take(m *rmq.MessageView) {
	index, ours := indexOf(m)
	if !ours {
		return
	}
	role := index % 4
	since, again := c.since[index]
	if !again && role > 0 {
		c.since[index] = time.Now()
		duration := map[bool]time.Duration{true: later, false: sooner}[role == 2]
		report.Failed(c.consumer.ChangeInvisibleDuration(m, duration))
		if role < 3 {
			return
		}
	} else if again {
		waited := time.Since(since)
		asAsked := sooner-time.Second <= waited && waited < received
		if role == 2 {
			asAsked = waited >= later-time.Second
		}
		report.Claim(fmt.Sprintf("%d came again", index), asAsked, waited)
	}
	report.Failed(c.consumer.Ack(context.Background(), m))
	take(m)
}
