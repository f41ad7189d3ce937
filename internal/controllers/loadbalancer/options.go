package loadbalancer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"github.com/kemudi/kemudi/internal/cloud/pool"
)

// Words of --load-balancer that are no pools.
const (
	// Nodes has each Service reached at the addresses of the nodes.
	Nodes = "nodes"
	// None leaves Services of type LoadBalancer to other programs.
	None = "none"
	// defaultPool is the name of ranges that are given none.
	defaultPool = "default"
)

// Class is that of Services that are ours where a cloud has the others.
const Class = "kemudi.io/load-balancer"

// Options say at what addresses Services of type LoadBalancer are reached. The zero value is
// None.
type Options struct {
	// From is what --load-balancer says: None, or what the addresses are of: Nodes, and ranges
	// with or without the name of a pool, as NAME=192.0.2.0/28. Of several the first is for Services
	// that name none.
	From []string
	// Beside says that another program has the Services without a class (--cloud-provider).
	Beside bool
}

// Defaults are the options that people set, as they are when nobody does.
func Defaults() Options { return Options{From: []string{Nodes}} }

// A source is what addresses are of.
type source struct {
	name  string
	nodes bool      // those of the nodes
	pool  pool.Pool // else these
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	_, err := o.sources()
	return err
}

// sources are what the options name, in their order; none: nothing is ours.
func (o Options) sources() ([]source, error) {
	var all []source
	for _, word := range o.From {
		word = strings.TrimSpace(word)
		switch {
		case word == None && len(o.From) > 1:
			return nil, errors.New("--load-balancer: none goes with nothing else")
		case word == None || word == "" && len(o.From) == 1:
			return nil, nil
		case word == Nodes:
			if !slices.ContainsFunc(all, func(s source) bool { return s.nodes }) {
				all = append(all, source{name: Nodes, nodes: true})
			}
			continue
		}
		name, ranges, named := strings.Cut(word, "=")
		if !named {
			name, ranges = defaultPool, word
		}
		if errs := utilvalidation.IsDNS1123Label(name); len(errs) > 0 || name == Nodes || name == None {
			return nil, fmt.Errorf("--load-balancer %s: %q cannot be the name of a pool; want lower-case letters and digits", word, name)
		}
		p, err := pool.Parse([]string{ranges})
		if err != nil {
			return nil, fmt.Errorf("--load-balancer %s: want nodes, none, or addresses as 192.0.2.0/28, 192.0.2.10-192.0.2.20 or NAME=fd00::/120: %w", word, err)
		}
		if err := checkRange(word, p[0], all); err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(all, func(s source) bool { return s.name == name }); i >= 0 {
			all[i].pool = append(all[i].pool, p...)
			continue
		}
		all = append(all, source{name: name, pool: p})
	}
	return all, nil
}

// checkRange refuses addresses that nobody can be reached at, or that are of two ranges.
func checkRange(word string, r pool.Range, others []source) error {
	for _, a := range []netip.Addr{r.First, r.Last} {
		if !a.IsGlobalUnicast() || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("--load-balancer %s: others reach nothing at %s", word, a)
		}
	}
	for _, s := range others {
		for _, o := range s.pool {
			if o.First.Is4() == r.First.Is4() && !r.Last.Less(o.First) && !o.Last.Less(r.First) {
				return fmt.Errorf("--load-balancer %s: pool %s has some of these addresses", word, s.name)
			}
		}
	}
	return nil
}
