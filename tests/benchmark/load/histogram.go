package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	highestMicroseconds = 120_000_000
	significantDigits   = 3
)

// histogram is an HdrHistogram of microseconds that several workers share.
type histogram struct {
	mutex  sync.Mutex
	values *hdrhistogram.Histogram
}

func newHistogram() *histogram {
	return &histogram{values: hdrhistogram.New(1, highestMicroseconds, significantDigits)}
}

// record counts one latency; one above the highest counts as the highest.
func (h *histogram) record(took time.Duration) {
	value := min(max(took.Microseconds(), 1), highestMicroseconds)
	h.mutex.Lock()
	_ = h.values.RecordValue(value) // it is in range
	h.mutex.Unlock()
}

// merged adds up histograms, each of them once.
func merged(all ...*histogram) *histogram {
	total, seen := newHistogram(), map[*histogram]bool{}
	for _, one := range all {
		if !seen[one] {
			seen[one] = true
			total.values.Merge(one.values)
		}
	}
	return total
}

// latency summarises the values in milliseconds.
func (h *histogram) latency() latency {
	at := func(percent float64) float64 { return float64(h.values.ValueAtPercentile(percent)) / 1e3 }
	return latency{
		Count: int(h.values.TotalCount()),
		P50:   at(50), P90: at(90), P99: at(99), P999: at(99.9), P9999: at(99.99),
		Max: float64(h.values.Max()) / 1e3,
	}
}
