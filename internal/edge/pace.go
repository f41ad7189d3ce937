package edge

import (
	"runtime/debug"
	gauges "runtime/metrics"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// paceMany requests within paceLook are what the collector of garbage makes room for.
	paceMany = 1024
	paceLook = 2 * time.Second
	// paceRoom is how much garbage there may be then, in bytes: as much as is in use, but at least this.
	paceRoom = 24 << 20
)

// pace has garbage be collected more seldom while there are many requests: little is in use, so that by the collector's
// own measure each few megabytes would have it run. When they are over, memory goes back to the system.
type pace struct {
	asked atomic.Int64

	mu struct {
		sync.Mutex
		timer  *time.Timer // of the next look; nil: there are not many requests
		before int         // the collector's percentage without all this
		last   int64       // asked, at the last look
		closed bool
	}
}

// request counts one.
func (p *pace) request() {
	if n := p.asked.Add(1); n%paceMany == 0 {
		p.begin(n)
	}
}

func (p *pace) begin(asked int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.timer != nil || p.mu.closed {
		return
	}
	p.mu.last = asked
	p.mu.before = debug.SetGCPercent(percent())
	p.mu.timer = time.AfterFunc(paceLook, p.look)
}

// look comes as long as there are many requests.
func (p *pace) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return
	}
	asked := p.asked.Load()
	if asked-p.mu.last >= paceMany {
		p.mu.last = asked
		debug.SetGCPercent(percent())
		p.mu.timer.Reset(paceLook)
		return
	}
	p.mu.timer = nil
	debug.SetGCPercent(p.mu.before)
	debug.FreeOSMemory()
}

// close leaves the collector as it was.
func (p *pace) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.closed = true
	if p.mu.timer != nil {
		p.mu.timer.Stop()
		p.mu.timer = nil
		debug.SetGCPercent(p.mu.before)
	}
}

// percent is the collector's percentage for the room that there is to be.
func percent() int {
	s := []gauges.Sample{{Name: "/gc/heap/live:bytes"}}
	gauges.Read(s)
	live := max(s[0].Value.Uint64(), 1<<20) // before the first collection it is none
	return int(max(100, 100*paceRoom/live))
}
