package shutdown

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Group are the pods of a priority and of those above it, up to that of the next group, and how long they have to end.
type Group struct {
	Priority int32
	Period   time.Duration
}

// systemCritical is the lowest priority of what the cluster cannot do without.
const systemCritical = 2 * 1000000000

// Settings say how long a shutdown waits for pods. The zero value: it does not.
type Settings struct {
	Period   time.Duration // --shutdown-grace-period: for all of them
	Critical time.Duration // --shutdown-grace-period-critical-pods: of that, for what the cluster cannot do without
	// ByPriority says it for groups of pods, in place of both (--shutdown-grace-period-by-pod-priority).
	ByPriority Groups
}

// Check refuses what makes no sense.
func (s Settings) Check() error {
	short := func(d time.Duration) bool { return d < 0 || d > 0 && d < time.Second }
	switch {
	case short(s.Period):
		return fmt.Errorf("shutdown-grace-period: %s: must be either zero or otherwise >= 1 sec", s.Period)
	case short(s.Critical):
		return fmt.Errorf("shutdown-grace-period-critical-pods: %s: must be either zero or otherwise >= 1 sec", s.Critical)
	case s.Critical > s.Period:
		return fmt.Errorf("shutdown-grace-period-critical-pods: %s: must be <= shutdown-grace-period: %s", s.Critical, s.Period)
	case s.Period > 0 && len(s.ByPriority) > 0:
		return errors.New("shutdown-grace-period and shutdown-grace-period-by-pod-priority: give one of them")
	}
	for _, g := range s.ByPriority {
		if short(g.Period) {
			return fmt.Errorf("shutdown-grace-period-by-pod-priority: %d=%s: must be either zero or otherwise >= 1 sec", g.Priority, g.Period)
		}
	}
	return nil
}

// Groups are those in which pods end, in that order. None: a shutdown does not wait.
func (s Settings) Groups() []Group {
	if len(s.ByPriority) > 0 {
		return slices.SortedFunc(slices.Values(s.ByPriority), func(a, b Group) int { return cmp.Compare(a.Priority, b.Priority) })
	}
	if s.Period == 0 {
		return nil
	}
	return []Group{{0, s.Period - s.Critical}, {systemCritical, s.Critical}}
}

// total is how long all of them have.
func total(list []Group) (d time.Duration) {
	for _, g := range list {
		d += g.Period
	}
	return d
}

// share divides pods among groups. Those of a priority below all of them are of the first one.
func share(list []Group, pods []*v1.Pod) [][]*v1.Pod {
	out := make([][]*v1.Pod, len(list))
	for _, pod := range pods {
		priority := int32(0)
		if pod.Spec.Priority != nil {
			priority = *pod.Spec.Priority
		}
		i := 0
		for i+1 < len(list) && list[i+1].Priority <= priority {
			i++
		}
		out[i] = append(out[i], pod)
	}
	return out
}

// Groups is the value of a flag: 0=10s,1000=20s.
type Groups []Group

// Type is for the flag's help.
func (g *Groups) Type() string { return "priority=duration,..." }

// String is what Set reads.
func (g *Groups) String() string {
	var parts []string
	for _, one := range *g {
		parts = append(parts, fmt.Sprintf("%d=%s", one.Priority, one.Period))
	}
	return strings.Join(parts, ",")
}

// Set reads a list, which takes the place of what was there.
func (g *Groups) Set(text string) error {
	*g = nil
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		priority, err := strconv.ParseInt(name, 10, 32)
		if err != nil {
			return fmt.Errorf("%q: must be of the form priority=duration", part)
		}
		d, err := time.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("%q: must be of the form priority=duration", part)
		}
		if slices.ContainsFunc(*g, func(o Group) bool { return o.Priority == int32(priority) }) {
			return fmt.Errorf("%q: the priority is given twice", part)
		}
		*g = append(*g, Group{int32(priority), d})
	}
	return nil
}
