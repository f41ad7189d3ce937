package tunnel

import (
	"github.com/kemudi/kemudi/internal/linger"
	"github.com/kemudi/kemudi/internal/resource"
)

// Func answers one request by connecting it.
type Func func(q *Request)

// List has every tunnel by the handler that declarations name. A new one is
// added here.
func (t *Tunnels) List() map[resource.Handler]Func {
	list := map[resource.Handler]Func{
		resource.HandleLog:         t.Log,         // pods/log: log.go
		resource.HandleExec:        t.Exec,        // pods/exec: exec.go
		resource.HandleAttach:      t.Attach,      // pods/attach: exec.go
		resource.HandlePortForward: t.PortForward, // pods/portforward: exec.go
		resource.HandleProxy:       t.Proxy,       // nodes, pods and services/proxy: proxy.go
	}
	for name, f := range list {
		list[name] = held(f)
	}
	return list
}

// held answers by f. A connection that f takes over ends when the server stops, and else when the client has read all
// that was written to it.
func held(f Func) Func {
	return func(q *Request) {
		w := linger.Hold(q.R.Context(), q.W, nil)
		defer w.Finish()
		q.W = w
		f(q)
	}
}
