package namespace

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// lookElsewhere is how long after a look at what other servers have the next one is.
const lookElsewhere = 2 * time.Second

// findings are what is left in a namespace, and what is in the way.
type findings struct {
	left    []remainder
	failed  []string // deletions, and what has not gone though it should have
	others  []string // what other servers have left, in the words of the condition
	unknown []string // group-versions of which nobody knows what is left, and why
}

// emptyElsewhere deletes what other servers have in a namespace.
func (r *reconciler) emptyElsewhere(ctx context.Context, ns string, found *findings) error {
	left, unknown, err := r.elsewhere(ctx, ns)
	for gr, n := range left {
		if n > 0 {
			found.others = append(found.others, fmt.Sprintf("%s.%s has %d resource instances", gr.Resource, gr.Group, n))
		}
	}
	slices.Sort(found.others)
	for _, gv := range unknown {
		found.unknown = append(found.unknown, fmt.Sprintf("%s: stale GroupVersion discovery: %s", gv, gv))
	}
	if err != nil {
		return fmt.Errorf("empty namespace %s of what other servers have: %w", ns, err)
	}
	return nil
}
