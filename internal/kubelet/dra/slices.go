package dra

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/kemudi/kemudi/internal/api/dra"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/backoff"
	"github.com/kemudi/kemudi/internal/task"
)

// wipe is the deletion of a driver's slices that is to come.
type wipe struct{ cancel context.CancelFunc }

// watchSlices is called when a plugin of a driver came or went. Without a plugin that can be asked it has the driver's
// slices deleted after a while, so that no pod is sent here for its devices; with one it calls that off.
func (m *Manager) watchSlices(ctx context.Context, driver string) {
	m.mu.Lock()
	pending := m.mu.wipes[driver]
	if slices.ContainsFunc(m.mu.drivers[driver], isConnected) {
		delete(m.mu.wipes, driver)
		m.mu.Unlock()
		if pending != nil {
			pending.cancel()
		}
		return
	}
	if pending != nil { // it has been told
		m.mu.Unlock()
		return
	}
	until, cancel := context.WithCancel(ctx)
	w := &wipe{cancel}
	m.mu.wipes[driver] = w
	m.mu.Unlock()
	run := func(context.Context) error {
		defer cancel()
		if task.Sleep(until, m.waits.absence) != nil {
			return nil
		}
		return m.deleteSlices(until, driver, w)
	}
	if m.begin(ctx, life{"resource slices of an absent driver", run}) != nil {
		cancel()
	}
}

func isConnected(d *driver) bool { return d.connected }

// deleteSlices deletes the slices of this node of a driver (empty: of all), as often as it takes. w is
// what asks for it; nil: the start of the agent.
func (m *Manager) deleteSlices(ctx context.Context, driver string, w *wipe) error {
	which := fields.Set{resourcev1.ResourceSliceSelectorNodeName: m.o.Node}
	if driver != "" {
		which[resourcev1.ResourceSliceSelectorDriver] = driver
	}
	for failures := 1; ; failures++ {
		err := m.deleteThose(ctx, which.String())
		if ctx.Err() != nil {
			return nil // the driver is back, or the agent ends
		}
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		again := backoff.Slices.After(failures)
		m.o.Log.Debug("delete resource slices", "driver", driver, "err", err, "retry", again)
		if task.Sleep(ctx, again) != nil {
			return nil
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if w != nil && m.mu.wipes[driver] == w {
		delete(m.mu.wipes, driver)
	}
	return nil
}

func (m *Manager) deleteThose(ctx context.Context, which string) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	_, err := m.o.Transport.Do(ctx, &client.Request{Verb: "deletecollection", Def: dra.ResourceSlices.Def, List: metav1.ListOptions{FieldSelector: which}})
	return err
}
