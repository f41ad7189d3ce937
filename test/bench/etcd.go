package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// memberEnv tells a process of this program to be a member of an etcd with its own settings:
// its number, how many there are, and its directory.
const memberEnv = "KEMUDI_BENCH_ETCD"

const (
	etcdClientPort = 23790 // one more for each member
	etcdPeerPort   = 23800 // likewise
)

func etcdURL(first, number int) string {
	return "http://127.0.0.1:" + strconv.Itoa(first+number)
}

// etcdMember is a member of an etcd until ctx ends.
func etcdMember(ctx context.Context, what string) error {
	var number, of int
	var dir string
	if _, err := fmt.Sscan(what, &number, &of, &dir); err != nil {
		return fmt.Errorf("%s=%q: %w", memberEnv, what, err)
	}
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel = strconv.Itoa(number), dir, "error"
	var all []string
	for i := range of {
		all = append(all, strconv.Itoa(i)+"="+etcdURL(etcdPeerPort, i))
	}
	c.InitialCluster = strings.Join(all, ",")
	for urls, first := range map[*[]url.URL]int{&c.ListenClientUrls: etcdClientPort, &c.AdvertiseClientUrls: etcdClientPort, &c.ListenPeerUrls: etcdPeerPort, &c.AdvertisePeerUrls: etcdPeerPort} {
		u, err := url.Parse(etcdURL(first, number))
		if err != nil {
			return fmt.Errorf("address of etcd: %w", err)
		}
		*urls = []url.URL{*u}
	}
	e, err := embed.StartEtcd(c)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	defer e.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-e.Err():
		return fmt.Errorf("run etcd: %w", err)
	}
}

// plainEtcd measures the writes of an etcd with its own settings, of one member and of three.
func (b *bench) plainEtcd(ctx context.Context) error {
	one, err := b.plainWrites(ctx, b.dir, 1)
	if err := b.set(plainOne, plainOne.unit.of(one), err); err != nil {
		return err
	}
	three, err := b.plainWrites(ctx, b.dir, serversJoined)
	if err := b.set(plainThree, plainThree.unit.of(three), err); err != nil {
		return err
	}
	return b.set(plainRatio, float64(three)/float64(one), nil)
}

// plainWrites is how long half of the writes take at most, of one client, to an etcd of so
// many members with its own settings, each a process. dir is where they have their data.
func (b *bench) plainWrites(ctx context.Context, dir string, members int) (_ time.Duration, err error) {
	exe, err := os.Executable()
	if err != nil {
		return 0, fmt.Errorf("find this program: %w", err)
	}
	for i := range members {
		cmd := exec.CommandContext(ctx, exe)
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", memberEnv, i, members, filepath.Join(dir, fmt.Sprintf("etcd-%d-%d", members, i))))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return 0, fmt.Errorf("start etcd: %w", err)
		}
		defer func() {
			err = errors.Join(err, cmd.Process.Kill())
			_ = cmd.Wait() // it was killed
		}()
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{etcdURL(etcdClientPort, 0)}, DialTimeout: patience, Context: ctx})
	if err != nil {
		return 0, fmt.Errorf("connect to etcd: %w", err)
	}
	defer c.Close()
	value := strings.Repeat("x", 500)
	put := func(i int) error {
		_, err := c.Put(ctx, "/bench/"+strconv.Itoa(i), value)
		return err
	}
	if _, err := try(ctx, func() (struct{}, error) { return struct{}{}, put(0) }); err != nil {
		return 0, err
	}
	return each(writesTimed, put)
}

// each calls f so often, and returns how long half of the calls took at most.
func each(n int, f func(i int) error) (time.Duration, error) {
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		if err := f(i); err != nil {
			return 0, err
		}
		took[i] = time.Since(began)
	}
	return quantile(took, 0.5), nil
}
