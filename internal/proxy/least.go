package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/task"
)

// Where endpoints are chosen by their connections, the kernel tells of each that begins or ends, and a look at all of
// them says who has the fewest: the rules have only these, in turn. What is counted is this node's, as IPVS does it.

// counted is an endpoint whose connections are counted.
type counted struct {
	proto Proto
	at    netip.AddrPort
}

// least are the endpoints with the fewest connections, in order.
func least(all []netip.AddrPort, proto Proto, counts map[counted]int) (list []netip.AddrPort) {
	fewest := -1
	for _, at := range all {
		n := counts[counted{proto, at}]
		if fewest < 0 || n < fewest {
			fewest, list = n, nil
		}
		if n == fewest {
			list = append(list, at)
		}
	}
	return list
}

// setCounts takes in how many connections endpoints have.
func (m *Model) setCounts(now map[counted]int) {
	for _, o := range m.owners {
		for _, frag := range o.frags {
			if frag == nil {
				continue
			}
			for c := range frag.counted {
				if m.counts[c] != now[c] {
					m.dirty[o] = true
					break
				}
			}
		}
	}
	m.counts = now
}

// counts looks at all tracked connections that were led to an endpoint.
func (k *kernel) counts() (map[counted]int, error) {
	now := map[counted]int{}
	for _, f := range families {
		for _, proto := range []Proto{TCP, UDP, SCTP} {
			list, err := k.flows.Flows(nft.FlowFilter{Family: f, Proto: uint8(proto)})
			if err != nil {
				return nil, fmt.Errorf("count connections: %w", err)
			}
			for i := range list {
				if flow := &list[i]; flow.Open() && flow.Answers != flow.To {
					now[counted{proto, flow.Answers}]++
				}
			}
		}
	}
	return now, nil
}

// hear has connections counted whenever one begins or ends.
func (p *Proxy) hear(ctx context.Context) error {
	for {
		err := p.tracked.Next(ctx, func(m nft.Message) bool { return m.Type>>8 == unix.NFNL_SUBSYS_CTNETLINK })
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case p.recount <- struct{}{}:
		default: // they are to be counted already
		}
		if err := task.Sleep(ctx, max(p.o.MinInterval, calm*time.Duration(p.counting.Load()))); err != nil {
			return nil
		}
	}
}

// calm is how much longer than a look at all connections the time before the next one is.
const calm = 10

// count counts connections for the model.
func (p *Proxy) count() error {
	began := time.Now()
	now, err := p.kernel.counts()
	if err != nil {
		return err
	}
	p.model.setCounts(now)
	p.counting.Store(int64(time.Since(began)))
	return nil
}

// openTracked joins those who are told of tracked connections, in the network namespace of the calling thread.
func openTracked() (*nft.Groups, error) {
	return nft.Join(unix.NETLINK_NETFILTER, "tracked connections", unix.NFNLGRP_CONNTRACK_NEW, unix.NFNLGRP_CONNTRACK_UPDATE, unix.NFNLGRP_CONNTRACK_DESTROY)
}
