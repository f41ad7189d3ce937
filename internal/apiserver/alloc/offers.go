package alloc

import (
	"cmp"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/cache"
)

// Offered is what objects offer of a class, the oldest object's first; ok is false if
// there are none, or if nobody knows yet.
func (a *Allocator) Offered(class string) (values []string, ok bool) {
	d := a.offers[class]
	if d == nil {
		return nil, false
	}
	items := a.o.Caches.Cache(d).List("", nil)
	slices.SortStableFunc(items, func(a, b *cache.Item) int {
		x, y := a.Object.GetCreationTimestamp(), b.Object.GetCreationTimestamp()
		return cmp.Or(x.Time.Compare(y.Time), strings.Compare(a.Key, b.Key))
	})
	for _, it := range items {
		values = append(values, d.Offer.Values(it.Object)...)
	}
	return values, len(items) > 0
}
