package main

import (
	"sync"
	"syscall"
	"time"
)

// report is the line that load prints. Messages and latencies are those of the measured time.
type report struct {
	Operation   string         `json:"operation"`
	Size        int            `json:"size"`
	Connections int            `json:"connections"`
	Window      int            `json:"window"`
	Messages    int64          `json:"messages"`
	AllMessages int64          `json:"all_messages"` // those of the warm-up and the last ones included
	Seconds     float64        `json:"seconds"`
	PerSecond   float64        `json:"messages_per_second"`
	Latency     latency        `json:"latency_ms"`
	PopLatency  *latency       `json:"pop_latency_ms,omitempty"`
	Counts      map[string]int `json:"counts,omitempty"`
	CPUSeconds  float64        `json:"cpu_seconds"`

	mutex      sync.Mutex
	Errors     int    `json:"errors"`
	FirstError string `json:"first_error"`
}

// latency is a distribution in milliseconds.
type latency struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p99_9"`
	P9999 float64 `json:"p99_99"`
	Max   float64 `json:"max"`
}

// addError counts an error, keeps the text of the first and returns how many there are.
func (r *report) addError(text string) int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.Errors++; r.Errors == 1 {
		r.FirstError = text
	}
	return r.Errors
}

// count adds to a named count.
func (r *report) count(name string, number int) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.Counts == nil {
		r.Counts = map[string]int{}
	}
	r.Counts[name] += number
}

// ownCPU is the user and system time of this process so far.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
