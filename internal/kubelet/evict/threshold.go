package evict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Signal is what of a node can run out.
type Signal string

// The signals, in the order in which they are dealt with.
const (
	MemoryAvailable  Signal = "memory.available"
	PodsMemory       Signal = "allocatableMemory.available" // of what all pods may have together, where some is reserved
	NodeFSAvailable  Signal = "nodefs.available"
	NodeFSInodes     Signal = "nodefs.inodesFree"
	ImageFSAvailable Signal = "imagefs.available"
	ImageFSInodes    Signal = "imagefs.inodesFree"
	PIDAvailable     Signal = "pid.available"
)

// signals are those that people name; order is of all.
var (
	signals = []Signal{MemoryAvailable, NodeFSAvailable, NodeFSInodes, ImageFSAvailable, ImageFSInodes, PIDAvailable}
	order   = slices.Insert(slices.Clone(signals), 1, PodsMemory)
)

// followed are signals that people may name, and that are not watched by themselves: writable layers are where images or the
// node's other files are, and what is said of these counts.
var followed = []Signal{"containerfs.available", "containerfs.inodesFree"}

// Condition is the node's condition that tells of the signal.
func (s Signal) Condition() v1.NodeConditionType {
	switch s {
	case MemoryAvailable, PodsMemory:
		return v1.NodeMemoryPressure
	case PIDAvailable:
		return v1.NodePIDPressure
	}
	return v1.NodeDiskPressure
}

// Disk reports whether it is of a file system.
func (s Signal) Disk() bool { return s.Condition() == v1.NodeDiskPressure }

// Inodes reports whether it counts files, not what they hold.
func (s Signal) Inodes() bool { return s == NodeFSInodes || s == ImageFSInodes }

// Resource names what has run out, as events and messages do.
func (s Signal) Resource() string {
	switch s {
	case MemoryAvailable, PodsMemory:
		return "memory"
	case NodeFSInodes, ImageFSInodes:
		return "inodes"
	case PIDAvailable:
		return "pids"
	}
	return "ephemeral-storage"
}

// quantity is an amount of the signal, as messages write it.
func (s Signal) quantity(n int64) string {
	format := resource.BinarySI
	if s.Inodes() || s == PIDAvailable {
		format = resource.DecimalSI
	}
	return resource.NewQuantity(n, format).String()
}

// Threshold is how little of something may be left: Amount in bytes, inodes or
// processes, or else Percent of the capacity.
type Threshold struct {
	Signal  Signal
	Amount  int64
	Percent float64
	// Grace is how long it must have been so before pods have to go, which then have
	// time for it. 0: they go at once.
	Grace time.Duration
}

// of is the threshold for a capacity.
func (t Threshold) of(capacity int64) int64 {
	if t.Percent > 0 {
		return int64(t.Percent / 100 * float64(capacity))
	}
	return t.Amount
}

// WithPods adds that as much as of the node's memory is to be left of what all pods may have together: before they reach that,
// and the kernel kills whom it finds, one of them is to go.
func WithPods(list []Threshold) []Threshold {
	for _, t := range list {
		if t.Signal == MemoryAvailable && t.Grace == 0 {
			t.Signal = PodsMemory
			return append(slices.Clone(list), t)
		}
	}
	return list
}

// Held is how much of a capacity pods do not get, so that the threshold of the
// signal is not reached by what they asked for. 0 if there is no threshold.
func Held(list []Threshold, s Signal, capacity int64) int64 {
	for _, t := range list {
		if t.Signal == s {
			return t.of(capacity)
		}
	}
	return 0
}

// Thresholds is a list that a flag can set. A nil list means that the flag was not
// given; with an empty list nothing is watched.
type Thresholds []Threshold

// Type names the kind of flag.
func (t *Thresholds) Type() string { return "signal<value,..." }

// Set reads thresholds; see [Parse].
func (t *Thresholds) Set(text string) error {
	list, err := Parse(text)
	*t = append(Thresholds{}, list...)
	return err
}

// String is the text that Set reads; of nil, the default.
func (t *Thresholds) String() string {
	if *t == nil {
		return Default
	}
	parts := make([]string, len(*t))
	for i, one := range *t {
		parts[i] = string(one.Signal) + "<" + one.Value()
	}
	return strings.Join(parts, ",")
}

// Value is the threshold without its signal, as text.
func (t Threshold) Value() string {
	if t.Percent > 0 {
		return strconv.FormatFloat(t.Percent, 'f', -1, 64) + "%"
	}
	return resource.NewQuantity(t.Amount, resource.BinarySI).String()
}

// Default is what is watched unless told otherwise. Upstream wants 10 and 15 % of
// the disks free, which is a lot on the disk of a laptop that others use too.
const Default = "imagefs.available<5%,imagefs.inodesFree<5%,memory.available<100Mi,nodefs.available<5%,nodefs.inodesFree<5%"

// Parse reads thresholds such as [Default]. A percentage of 0 or 100 turns a
// signal off; empty text turns all off.
func Parse(text string) ([]Threshold, error) { return parse(text, "<") }

// parse reads amounts of signals, which sign stands before.
func parse(text, sign string) ([]Threshold, error) {
	var out []Threshold
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, sign)
		t := Threshold{Signal: Signal(strings.TrimSpace(name))}
		if !ok {
			return nil, fmt.Errorf("eviction threshold %q: must be of the form signal%svalue", part, sign)
		}
		if slices.Contains(followed, t.Signal) {
			continue
		}
		if !slices.Contains(signals, t.Signal) {
			return nil, fmt.Errorf("eviction threshold %q: unsupported eviction signal %q", part, name)
		}
		if slices.ContainsFunc(out, func(o Threshold) bool { return o.Signal == t.Signal }) {
			return nil, fmt.Errorf("eviction threshold %q: the signal is given twice", part)
		}
		if percent, ok := strings.CutSuffix(strings.TrimSpace(value), "%"); ok {
			p, err := strconv.ParseFloat(percent, 64)
			if err != nil || p < 0 || p > 100 || p != p {
				return nil, fmt.Errorf("eviction threshold %q: the percentage must be from 0 to 100", part)
			}
			if p == 0 || p == 100 {
				continue
			}
			t.Percent = p
		} else {
			q, err := resource.ParseQuantity(strings.TrimSpace(value))
			if err != nil || q.Sign() < 0 {
				return nil, fmt.Errorf("eviction threshold %q: the quantity must be 0 or more, such as 100Mi", part)
			}
			t.Amount = q.Value()
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b Threshold) int { return slices.Index(signals, a.Signal) - slices.Index(signals, b.Signal) })
	return out, nil
}
