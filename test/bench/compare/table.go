package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// figures are what was measured, in the order in which it came.
type figures struct {
	order []key
	byKey map[key]*[2][]float64 // of the base and of now, by round
}

// key says what a figure is of.
type key struct{ name, unit string }

func (r *figures) add(name, unit string, side int, v float64) {
	k := key{name, unit}
	if r.byKey[k] == nil {
		if r.byKey == nil {
			r.byKey = map[key]*[2][]float64{}
		}
		r.byKey[k] = &[2][]float64{}
		r.order = append(r.order, k)
	}
	r.byKey[k][side] = append(r.byKey[k][side], v)
}

// table shows both sides and the ratio of now to the base; the spread is that of
// the ratios of single rounds, least to most.
func (r *figures) table() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "benchmark\tunit\tbase\tnow\tratio\tspread\t")
	for _, k := range r.order {
		base, now := r.byKey[k][0], r.byKey[k][1]
		if len(base) == 0 || len(now) == 0 { // only one of them has it
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t\t\t\n", k.name, k.unit, number(base), number(now))
			continue
		}
		ratio, spread := ratios(base, now)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", k.name, k.unit, number(base), number(now), ratio, spread)
	}
	w.Flush() // to a Builder, which takes all
	lines := strings.Split(b.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

// ratios compares the medians, and round with round.
func ratios(base, now []float64) (ratio, spread string) {
	var each []float64
	for i := range min(len(base), len(now)) {
		if base[i] > 0 {
			each = append(each, now[i]/base[i])
		}
	}
	if median(base) == 0 || len(each) == 0 {
		return "", ""
	}
	return fmt.Sprintf("%.2f", median(now)/median(base)), fmt.Sprintf("%.2f to %.2f", slices.Min(each), slices.Max(each))
}

func number(values []float64) string {
	if len(values) == 0 {
		return "none"
	}
	return fmt.Sprintf("%.4g", median(values))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
