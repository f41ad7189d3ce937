package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/kemudi/kemudi/internal/task"
)

const (
	idleRest   = 10 * time.Second // for what still happens after the work before
	idleWindow = time.Minute
)

// idler is an idle server, and the measures that it is for.
type idler struct {
	s                 *server
	memory, cpu, disk measure
	before            usage
}

// idle measures what idle servers use.
func (b *bench) idle(ctx context.Context, list []*idler) error {
	b.say("idle for %s", idleRest+idleWindow)
	if err := task.Sleep(ctx, idleRest); err != nil {
		return err
	}
	began := time.Now()
	for _, i := range list {
		own, pods, err := i.s.used()
		if err != nil {
			return err
		}
		i.before = own
		i.before.add(pods)
	}
	if err := task.Sleep(ctx, idleWindow); err != nil {
		return err
	}
	window := time.Since(began)
	for _, i := range list {
		now, pods, err := i.s.used()
		if err != nil {
			return err
		}
		now.add(pods)
		b.results[i.memory] = mib(now.rss)
		b.results[i.cpu] = 100 * float64(now.cpu-i.before.cpu) / float64(window)
		b.results[i.disk] = float64(now.written-i.before.written) / (1 << 10) * float64(time.Minute) / float64(window)
		for _, m := range []measure{i.memory, i.cpu, i.disk} {
			b.say("%s: %s", m.name, m.unit.format(b.results[m]))
		}
	}
	return nil
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// programSize measures the program as a file, and as a download.
func (b *bench) programSize() error {
	f, err := os.Open(b.bin)
	if err != nil {
		return fmt.Errorf("open program: %w", err)
	}
	defer f.Close()
	var packed counter
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(zstd.MaxWindowSize/4))
	if err != nil {
		return fmt.Errorf("compress program: %w", err)
	}
	n, err := z.ReadFrom(f)
	if err != nil {
		return fmt.Errorf("compress program: %w", err)
	}
	if err := z.Close(); err != nil {
		return fmt.Errorf("compress program: %w", err)
	}
	b.results[size], b.results[sizePacked] = mib(n), mib(int64(packed))
	b.say("%s: %s, compressed %s", size.name, size.unit.format(mib(n)), size.unit.format(mib(int64(packed))))
	return nil
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}
