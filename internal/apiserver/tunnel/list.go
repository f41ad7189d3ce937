package tunnel

import "github.com/kemudi/kemudi/internal/resource"

// Func answers one request by connecting it.
type Func func(q *Request)

// List has every tunnel by the handler that declarations name. A new one is
// added here.
func (t *Tunnels) List() map[resource.Handler]Func {
	return map[resource.Handler]Func{
		resource.HandleLog:         t.Log,         // pods/log: log.go
		resource.HandleExec:        t.Exec,        // pods/exec: exec.go
		resource.HandleAttach:      t.Attach,      // pods/attach: exec.go
		resource.HandlePortForward: t.PortForward, // pods/portforward: exec.go
		resource.HandleProxy:       t.Proxy,       // nodes, pods and services/proxy: proxy.go
	}
}
