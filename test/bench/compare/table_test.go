package main

import "testing"

func TestTableShowsMediansRatiosAndTheirSpread(t *testing.T) {
	var r figures
	for round, v := range []float64{100, 300, 200} {
		r.add("cache Get", "ns/op", 0, v)
		r.add("cache Get", "ns/op", 1, v*float64(round+1)/2)
		r.add("cache Get", "allocs/op", 0, 0)
		r.add("cache Get", "allocs/op", 1, 0)
	}
	r.add("cache New", "ns/op", 1, 1234567)
	want := "" +
		"  benchmark       unit  base        now  ratio        spread\n" +
		"  cache Get      ns/op   200        300   1.50  0.50 to 1.50\n" +
		"  cache Get  allocs/op     0          0\n" +
		"  cache New      ns/op  none  1.235e+06\n"
	if got := r.table(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
