package flow

import (
	"context"
	"hash/maphash"
	"math"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/util/shufflesharding"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/flowcontrol"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/task"
)

// widestShare is the part of a level's seats that one request takes at most.
const widestShare = 0.15

// Follow configures by the objects of two caches, whenever they change, until ctx ends.
func (c *Control) Follow(ctx context.Context, schemas, levels *cache.Cache) error {
	changed := make(chan struct{}, 1)
	g := task.NewGroup(ctx)
	for _, from := range []*cache.Cache{schemas, levels} {
		g.Go("flow configuration", func(ctx context.Context) error {
			err := from.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error {
				select {
				case changed <- struct{}{}:
				default: // it will be looked at both
				}
				return nil
			})
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
	}
	g.Go("flow configuration in force", func(ctx context.Context) error {
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return nil
			}
			c.Configure(objects[*flowcontrolv1.FlowSchema](schemas), objects[*flowcontrolv1.PriorityLevelConfiguration](levels))
		}
	})
	return g.Wait()
}

func objects[T any](from *cache.Cache) []T {
	var out []T
	for _, it := range from.List("", nil) {
		out = append(out, it.Object.(T))
	}
	return out
}

// Configure changes schemas and levels. What is mandatory and missing is as it should be; where
// there are no schemas at all, before anybody has made them, those that are suggested apply.
// Requests that run or wait go on by the seats that their level has now.
func (c *Control) Configure(schemas []*flowcontrolv1.FlowSchema, levels []*flowcontrolv1.PriorityLevelConfiguration) {
	given := []flowcontrol.Given{flowcontrol.Mandatory()}
	if len(schemas) == 0 {
		given = append(given, flowcontrol.Suggested())
	}
	for _, g := range given {
		for _, fs := range g.Schemas {
			if !slices.ContainsFunc(schemas, func(o *flowcontrolv1.FlowSchema) bool { return o.Name == fs.Name }) {
				schemas = append(slices.Clip(schemas), fs)
			}
		}
		for _, pl := range g.Levels {
			if !slices.ContainsFunc(levels, func(o *flowcontrolv1.PriorityLevelConfiguration) bool { return o.Name == pl.Name }) {
				levels = append(slices.Clip(levels), pl)
			}
		}
	}
	c.configuring.Lock()
	defer c.configuring.Unlock()
	byName := c.setLevels(levels)
	r := &ranking{}
	var all []*schema
	for _, fs := range schemas {
		l := byName[fs.Spec.PriorityLevelConfiguration.Name]
		if l == nil {
			continue // it dangles
		}
		all = append(all, c.newSchema(fs, l))
	}
	slices.SortFunc(all, byRank)
	for _, s := range all {
		if slices.ContainsFunc(s.rules, func(r rule) bool { return len(r.resources) > 0 }) {
			r.resources = append(r.resources, s)
		}
		if slices.ContainsFunc(s.rules, func(r rule) bool { return len(r.paths) > 0 }) {
			r.paths = append(r.paths, s)
		}
		if s.name == flowcontrolv1.FlowSchemaNameCatchAll {
			r.rest = s
		}
	}
	c.ranking.Store(r)
}

func (c *Control) newSchema(fs *flowcontrolv1.FlowSchema, l *level) *schema {
	s := &schema{
		name: fs.Name, uid: header(fs.UID), precedence: fs.Spec.MatchingPrecedence, level: l, levelUID: l.uid, widest: l.widest,
		seed: maphash.String(c.seed, fs.Name), stats: c.metrics.of(fs.Name, l.name),
	}
	if fs.Spec.DistinguisherMethod != nil {
		s.by = fs.Spec.DistinguisherMethod.Type
	}
	for i := range fs.Spec.Rules {
		s.rules = append(s.rules, newRule(&fs.Spec.Rules[i]))
	}
	return s
}

func header(uid types.UID) []string {
	if uid == "" {
		return nil
	}
	return []string{string(uid)}
}

// setLevels puts levels in force, and returns them by their names. A level that is gone ends
// with its requests, which have what others lend.
func (c *Control) setLevels(levels []*flowcontrolv1.PriorityLevelConfiguration) map[string]*level {
	shares := 0
	for _, pl := range levels {
		shares += int(sharesOf(pl))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	byName, was := map[string]*level{}, c.mu.levels
	c.mu.levels = nil
	for _, pl := range levels {
		var l *level
		if i := slices.IndexFunc(was, func(l *level) bool { return l.name == pl.Name && l.exempt == isExempt(pl) }); i >= 0 {
			l = was[i]
			was = slices.Delete(was, i, i+1)
		} else {
			l = &level{name: pl.Name, exempt: isExempt(pl), held: map[uint64]int{}, average: firstAverage}
		}
		l.uid, l.leaving = header(pl.UID), false
		l.set(pl, c.o.Seats, shares)
		byName[l.name] = l
		c.mu.levels = append(c.mu.levels, l)
	}
	for _, l := range was {
		if l.used > 0 || l.waiting > 0 {
			l.nominal, l.kept, l.most, l.leaving = 0, 0, math.MaxInt32, true
			c.mu.levels = append(c.mu.levels, l)
		}
	}
	c.mu.pool, c.mu.lent = 0, 0
	for _, l := range c.mu.levels {
		c.mu.pool += l.nominal - l.kept
		c.mu.lent += max(0, l.used-l.kept)
	}
	c.handOnLocked()
	return byName
}

func isExempt(pl *flowcontrolv1.PriorityLevelConfiguration) bool {
	return pl.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
}

func sharesOf(pl *flowcontrolv1.PriorityLevelConfiguration) int32 {
	switch {
	case pl.Spec.Limited != nil:
		return ptr.Deref(pl.Spec.Limited.NominalConcurrencyShares, 30)
	case pl.Spec.Exempt != nil:
		return ptr.Deref(pl.Spec.Exempt.NominalConcurrencyShares, 0)
	}
	return 0
}

// set takes over what an object says, of which there are so many seats for so many shares.
func (l *level) set(pl *flowcontrolv1.PriorityLevelConfiguration, seats, shares int) {
	l.nominal, l.deck, l.count, l.length = 0, nil, 0, 0
	if shares > 0 {
		l.nominal = int(math.Ceil(float64(seats) * float64(sharesOf(pl)) / float64(shares)))
	}
	l.widest = max(1, int(math.Ceil(float64(l.nominal)*widestShare)))
	part := func(percent *int32) int {
		return int(math.Round(float64(l.nominal) * float64(ptr.Deref(percent, 0)) / 100))
	}
	l.most = math.MaxInt32
	if pl.Spec.Exempt != nil {
		l.kept = l.nominal - part(pl.Spec.Exempt.LendablePercent)
	}
	limited := pl.Spec.Limited
	if limited == nil {
		return
	}
	l.kept = l.nominal - part(limited.LendablePercent)
	if limited.BorrowingLimitPercent != nil {
		l.most = l.nominal + part(limited.BorrowingLimitPercent)
	}
	q := limited.LimitResponse.Queuing
	if q == nil {
		return
	}
	// What is stored has been checked: a dealer there is.
	if deck, err := shufflesharding.NewDealer(int(q.Queues), int(q.HandSize)); err == nil {
		l.deck, l.count, l.length = deck, int(q.Queues), int(q.QueueLengthLimit)
		if l.queues == nil {
			l.queues = map[int]*queue{}
		}
	}
}
