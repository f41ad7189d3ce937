package evict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Soft are thresholds that are passed for a while before pods have to go.
type Soft struct {
	Thresholds Thresholds
	Grace      Graces // of each of them
	// MaxPodGrace is how many seconds a pod may take to end at the most; its own grace period if that is shorter.
	MaxPodGrace int64
}

// With returns a list of thresholds with the soft ones behind it.
func (s Soft) With(hard []Threshold) ([]Threshold, error) {
	all := slices.Clone(hard)
	for _, t := range s.Thresholds {
		if t.Grace = s.Grace[t.Signal]; t.Grace <= 0 {
			return nil, fmt.Errorf("grace period must be specified for the soft eviction threshold %v", t.Signal)
		}
		all = append(all, t)
	}
	return all, nil
}

// Graces are durations by signal. It is the value of a flag: memory.available=1m30s,...
type Graces map[Signal]time.Duration

// Type is for the flag's help.
func (g *Graces) Type() string { return "signal=duration,..." }

// String is what Set reads.
func (g *Graces) String() string {
	var parts []string
	for _, s := range slices.Sorted(maps.Keys(*g)) {
		parts = append(parts, string(s)+"="+(*g)[s].String())
	}
	return strings.Join(parts, ",")
}

// Set reads a list, which takes the place of what was there.
func (g *Graces) Set(text string) error {
	*g = Graces{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		signal := Signal(strings.TrimSpace(name))
		if !ok || !slices.Contains(signals, signal) {
			return fmt.Errorf("%q: must be of the form signal=duration, with one of the signals %v", part, signals)
		}
		d, err := time.ParseDuration(strings.TrimSpace(value))
		if err != nil || d < 0 {
			return fmt.Errorf("%q: the duration must be 0 or more, such as 1m30s", part)
		}
		(*g)[signal] = d
	}
	return nil
}

// Amounts are of signals, in the form of thresholds. It is the value of a flag: nodefs.available=500Mi,...
type Amounts []Threshold

// Type is for the flag's help.
func (a *Amounts) Type() string { return "signal=value,..." }

// String is what Set reads.
func (a *Amounts) String() string {
	var parts []string
	for _, one := range *a {
		parts = append(parts, string(one.Signal)+"="+one.Value())
	}
	return strings.Join(parts, ",")
}

// Set reads a list, which takes the place of what was there.
func (a *Amounts) Set(text string) error {
	list, err := parse(text, "=")
	*a = list
	return err
}
