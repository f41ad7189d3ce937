package podautoscaler

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// history is what was wanted and done before, which is remembered as long as some window
// reaches back.
type history struct {
	wanted   []sample // before it was stabilized
	up, down []change
}

// sample is what was wanted at a time.
type sample struct {
	replicas int32
	at       time.Time
}

// change is a number of pods added, or taken away.
type change struct {
	replicas int32
	at       time.Time
	outdated bool // no policy reaches back so far: the place may be used again
}

// begin notes how many pods there are when an autoscaler is seen for the first time: no
// window lets them go sooner than if it had been there.
func (h *history) begin(current int32, now time.Time) {
	if h.wanted == nil {
		h.wanted = []sample{{current, now}}
	}
}

// limit is why fewer or more pods are set than are wanted.
type limit struct{ reason, message string }

var (
	inRange       = limit{"DesiredWithinRange", "the desired count is within the acceptable range"}
	tooFew        = limit{"TooFewReplicas", "the desired replica count is less than the minimum replica count"}
	tooMany       = limit{"TooManyReplicas", "the desired replica count is more than the maximum replica count"}
	upTooFast     = limit{"ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"}
	downTooFast   = limit{"ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"}
	readyForScale = limit{"ReadyForNewScale", "recommended size matches current size"}
	upStable      = limit{"ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation"}
	downStable    = limit{"ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation"}
)

// bounds are what a wanted number is brought into.
type bounds struct {
	current, least, most int32
	behavior             *autoscalingv2.HorizontalPodAutoscalerBehavior // nil: as all
	downscale            time.Duration                                  // how long scaling down is stabilized that does not say it
	now                  time.Time
}

// follow is how many pods to set when wanted are wanted, and whether windows, and then
// limits, have changed that.
func (h *history) follow(wanted int32, b *bounds) (replicas int32, stable, limited limit) {
	if b.behavior == nil {
		return h.followAll(wanted, b)
	}
	now := h.stabilize(wanted, b)
	stable = readyForScale
	if now != wanted {
		stable = downStable
		if wanted >= b.current {
			stable = upStable
		}
	}
	replicas, limited = h.limitRate(now, b)
	return replicas, stable, limited
}

// followAll is follow without a behavior of the autoscaler's own.
func (h *history) followAll(wanted int32, b *bounds) (replicas int32, stable, limited limit) {
	cutoff := b.now.Add(-b.downscale)
	highest, free := wanted, -1
	for i, s := range h.wanted {
		if s.at.Before(cutoff) {
			free = i
		} else {
			highest = max(highest, s.replicas)
		}
	}
	h.note(wanted, free, b.now)
	stable = readyForScale
	if highest != wanted {
		stable = downStable
	}
	most, why := b.most, tooMany
	if up := int32(min(max(2*int64(b.current), 4), math.MaxInt32)); most > up {
		most, why = up, upTooFast
	}
	switch {
	case highest < b.least:
		return b.least, stable, tooFew
	case highest > most:
		return most, stable, why
	}
	return highest, stable, inRange
}

// note remembers what was wanted, in the place of what no window reaches any more if
// there is one.
func (h *history) note(wanted int32, free int, now time.Time) {
	if free >= 0 {
		h.wanted[free] = sample{wanted, now}
		return
	}
	h.wanted = append(h.wanted, sample{wanted, now})
}

// stabilize is the number nearest to the present one that has been wanted within the
// windows: no more than the lowest before pods are added, no less than the highest before
// they are taken away.
func (h *history) stabilize(wanted int32, b *bounds) int32 {
	upCutoff := b.now.Add(-window(b.behavior.ScaleUp, 0))
	downCutoff := b.now.Add(-window(b.behavior.ScaleDown, b.downscale))
	up, down, free := wanted, wanted, -1
	for i, s := range h.wanted {
		if s.at.After(upCutoff) {
			up = min(up, s.replicas)
		}
		if s.at.After(downCutoff) {
			down = max(down, s.replicas)
		}
		if s.at.Before(upCutoff) && s.at.Before(downCutoff) {
			free = i
		}
	}
	h.note(wanted, free, b.now)
	return min(max(b.current, up), down)
}

func window(r *autoscalingv2.HPAScalingRules, otherwise time.Duration) time.Duration {
	if r == nil || r.StabilizationWindowSeconds == nil {
		return otherwise
	}
	return time.Duration(*r.StabilizationWindowSeconds) * time.Second
}

// limitRate brings a number within the bounds, and within what policies allow at a time.
func (h *history) limitRate(wanted int32, b *bounds) (int32, limit) {
	switch {
	case wanted > b.current:
		most, why := b.most, tooMany
		if up := max(b.current, h.allowed(b, b.behavior.ScaleUp, true)); most > up {
			most, why = up, upTooFast
		}
		if wanted > most {
			return most, why
		}
	case wanted < b.current:
		least, why := b.least, tooFew
		if down := min(b.current, h.allowed(b, b.behavior.ScaleDown, false)); least < down {
			least, why = down, downTooFast
		}
		if wanted < least {
			return least, why
		}
	}
	return wanted, inRange
}

// allowed is how far the policies let the number go at once: up or down.
func (h *history) allowed(b *bounds, r *autoscalingv2.HPAScalingRules, up bool) int32 {
	if r == nil || r.SelectPolicy == nil || *r.SelectPolicy == autoscalingv2.DisabledPolicySelect {
		return b.current
	}
	// The policy that allows the greatest change is the highest upwards, and the lowest
	// downwards.
	highest := (*r.SelectPolicy == autoscalingv2.MaxChangePolicySelect) == up
	result := int64(math.MaxInt32)
	if highest {
		result = math.MinInt32
	}
	for _, p := range r.Policies {
		period := time.Duration(p.PeriodSeconds) * time.Second
		start := int64(b.current) - changed(h.up, period, b.now) + changed(h.down, period, b.now)
		if allows := p.Value; highest {
			result = max(result, reach(start, p.Type, allows, up))
		} else {
			result = min(result, reach(start, p.Type, allows, up))
		}
	}
	return int32(min(max(result, math.MinInt32), math.MaxInt32))
}

// reach is how far a policy goes from the number at the start of its period.
func reach(start int64, kind autoscalingv2.HPAScalingPolicyType, value int32, up bool) int64 {
	switch {
	case kind == autoscalingv2.PodsScalingPolicy && up:
		return start + int64(value)
	case kind == autoscalingv2.PodsScalingPolicy:
		return start - int64(value)
	case up: // rounded up, or a small number would never grow
		return int64(math.Ceil(float64(start) * (1 + float64(value)/100)))
	default:
		return int64(float64(start) * (1 - float64(value)/100))
	}
}

// changed is by how many pods a direction has gone within a period.
func changed(changes []change, period time.Duration, now time.Time) int64 {
	var sum int64
	for _, c := range changes {
		if c.at.After(now.Add(-period)) {
			sum += int64(c.replicas)
		}
	}
	return sum
}

// did notes that the number was changed, for policies to come.
func (h *history) did(from, to int32, b *bounds) {
	switch {
	case b.behavior == nil || from == to:
	case to > from:
		h.up = remember(h.up, to-from, b.behavior.ScaleUp, b.now)
	default:
		h.down = remember(h.down, from-to, b.behavior.ScaleDown, b.now)
	}
}

func remember(changes []change, n int32, r *autoscalingv2.HPAScalingRules, now time.Time) []change {
	var longest int32
	if r != nil {
		for _, p := range r.Policies {
			longest = max(longest, p.PeriodSeconds)
		}
	}
	free := -1
	for i := range changes {
		if changes[i].at.Before(now.Add(-time.Duration(longest) * time.Second)) {
			changes[i].outdated = true
		}
		if changes[i].outdated {
			free = i
		}
	}
	if free < 0 {
		return append(changes, change{replicas: n, at: now})
	}
	changes[free] = change{replicas: n, at: now}
	return changes
}
