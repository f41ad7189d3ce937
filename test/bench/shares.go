package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
)

// shareQuota of each sharePeriod is what each server may use of a processor: three servers and who asks them fit on two
// processors, and none of them waits for another's. So each has a processor of its own, though a slow one. In µs; the kernel takes no
// quota below 1000.
const (
	shareQuota  = 1000
	sharePeriod = 2000
)

// serversOfAShare measures gets of one server, and of three, each with the same share of a processor.
func (b *bench) serversOfAShare(ctx context.Context) (err error) {
	tree, top := cgroup.Open(cgroup.Top), fmt.Sprintf("/kemudi-bench-%d", os.Getpid())
	c := &several{b: b}
	defer func() {
		err = errors.Join(err, c.remove(ctx))
		for i := range c.servers {
			err = errors.Join(err, tree.Remove(shareOf(top, i)))
		}
		err = errors.Join(err, tree.Remove(top))
	}()
	start := func(i int) error {
		if err := c.start(ctx, i); err != nil {
			return err
		}
		if err := tree.Ensure(shareOf(top, i), &runtimeapi.LinuxContainerResources{CpuQuota: shareQuota, CpuPeriod: sharePeriod}); err != nil {
			return err
		}
		return tree.Join(shareOf(top, i), c.servers[i].cmd.Process.Pid)
	}
	if err := start(0); err != nil {
		return err
	}
	if err := c.load(ctx, shareWritesOne, shareGetsOne); err != nil {
		return err
	}
	for i := 1; i < serversJoined; i++ {
		if err := start(i); err != nil {
			return err
		}
	}
	if err := c.load(ctx, shareWritesThree, shareGetsThree); err != nil {
		return err
	}
	return b.set(shareGetsRatio, b.results[shareGetsThree]/b.results[shareGetsOne], nil)
}

// shareOf is the cgroup of a server.
func shareOf(top string, number int) string { return top + "/" + memberName(number) }
