package main

import (
	"testing"
	"time"
)

func TestPercentilesAreWithinAThousandth(t *testing.T) {
	one, other := newHistogram(), newHistogram()
	for i := 1; i <= 10_000; i++ {
		[]*histogram{one, other}[i%2].record(time.Duration(i) * 10 * time.Microsecond)
	}
	found := merged(one, other, one).latency()
	if found.Count != 10_000 {
		t.Errorf("%d values", found.Count)
	}
	for name, pair := range map[string][2]float64{
		"p50": {found.P50, 50}, "p99": {found.P99, 99}, "p99.9": {found.P999, 99.9}, "max": {found.Max, 100},
	} {
		if got, want := pair[0], pair[1]; got < want*0.999 || got > want*1.001 {
			t.Errorf("%s is %v ms instead of %v", name, got, want)
		}
	}
}
