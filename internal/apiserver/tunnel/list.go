package tunnel

// Func answers one request by connecting it.
type Func func(q *Request)

// List has every tunnel by the name that declarations use (Sub.Handler). A new
// one is added here.
func (t *Tunnels) List() map[string]Func {
	return map[string]Func{
		"log":         t.Log,         // pods/log: log.go
		"exec":        t.Exec,        // pods/exec: exec.go
		"attach":      t.Attach,      // pods/attach: exec.go
		"portforward": t.PortForward, // pods/portforward: exec.go
		"proxy":       t.Proxy,       // nodes, pods and services/proxy: proxy.go
	}
}
