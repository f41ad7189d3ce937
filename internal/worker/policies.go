package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/netpolicy"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/task"
)

// isolatedWithin is how long a new pod waits for the network policies that are for it.
const isolatedWithin = 30 * time.Second

// openPolicies makes what obeys network policies, so that the node agent can wait for it.
func (w *Worker) openPolicies() (err error) {
	w.measuredPolicies = prometheus.NewRegistry()
	w.policies, err = netpolicy.New(netpolicy.Options{
		NodeName: w.o.NodeName, Transport: w.c.Transport, Attached: w.attached, Log: w.o.Logger.With("part", "netpolicy"), Metrics: w.measuredPolicies,
	})
	return err
}

// keepPolicies starts it.
func (w *Worker) keepPolicies(g *task.Group) {
	w.agent.Registry().MustRegister(w.measuredPolicies)
	if w.o.Registry != nil {
		w.o.Registry.MustRegister(w.measuredPolicies)
	}
	g.Go("network policies", w.policies.Run)
}

// attached lists the pods of this machine that are in the pod network.
func (w *Worker) attached() ([]netpolicy.Pod, error) {
	list, err := podnet.Attached(podnetOptions(w.o.DataDir, w.o.RunDir))
	pods := make([]netpolicy.Pod, len(list))
	for i, a := range list {
		pods[i] = netpolicy.Pod{Key: types.NamespacedName{Namespace: a.Namespace, Name: a.Name}, UID: types.UID(a.UID), Addrs: a.Addrs}
	}
	return pods, err
}
