package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/obs"
)

// migrated are the kinds of volumes that were once part of Kubernetes, and that drivers of CSI see to now,
// as the annotation of a CSINode names them.
var migrated = strings.Join([]string{
	"kubernetes.io/aws-ebs", "kubernetes.io/azure-disk", "kubernetes.io/azure-file", "kubernetes.io/cinder",
	"kubernetes.io/gce-pd", "kubernetes.io/portworx-volume", "kubernetes.io/vsphere-volume",
}, ",")

const (
	migratedAnnotation = "storage.alpha.kubernetes.io/migrated-plugins"
	// nodeIDAnnotation says, on the Node, what each driver calls it.
	nodeIDAnnotation = "csi.volume.kubernetes.io/nodeid"
)

// csiState is what became of the node's CSINode.
type csiState struct {
	of  types.UID // the Node whose CSINode there is
	row obs.Row
}

// registered is a driver that the node has.
type registered struct {
	shown    storagev1.CSINodeDriver
	topology map[string]string // labels of the node
}

// AddDriver shows a driver in the node's CSINode, and its topology as labels of the Node. A Node that is made anew shows
// it again.
func (n *Node) AddDriver(ctx context.Context, d storagev1.CSINodeDriver, topology map[string]string) error {
	n.mu.Lock()
	n.mu.drivers[d.Name] = registered{d, topology}
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	if err := n.await(ctx, func(*v1.Node) bool { return true }); err != nil { // drivers may be faster than the Node
		return err
	}
	if err := n.showDrivers(ctx); err != nil {
		return err
	}
	node, err := n.Get(ctx)
	if err != nil {
		return fmt.Errorf("get node: %w", err)
	}
	return n.updateCSINode(ctx, node, "")
}

// RemoveDriver takes a driver out of the node's CSINode. Labels stay: volumes may be bound to them.
func (n *Node) RemoveDriver(ctx context.Context, name string) error {
	n.mu.Lock()
	delete(n.mu.drivers, name)
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	node, err := n.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil // and its CSINode goes with it
	case err != nil:
		return fmt.Errorf("get node: %w", err)
	}
	return errors.Join(n.hideDriver(ctx, name), n.updateCSINode(ctx, node, name))
}

// drivers are those that the node has, by name.
func (n *Node) drivers() map[string]registered {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.mu.drivers)
}

// showDrivers labels the Node with the topology of its drivers, and says there what they call it.
func (n *Node) showDrivers(ctx context.Context) error {
	drivers := n.drivers()
	if len(drivers) == 0 {
		return nil
	}
	return n.changeNode(ctx, func(node *v1.Node) error {
		ids := nodeIDs(node)
		for name, d := range drivers {
			ids[name] = d.shown.NodeID
			for key, value := range d.topology {
				if there, ok := node.Labels[key]; ok && there != value {
					return fmt.Errorf("detected topology value collision: driver reported %q:%q but existing label is %q:%q", key, value, key, there)
				}
				metav1.SetMetaDataLabel(&node.ObjectMeta, key, value)
			}
		}
		return setNodeIDs(node, ids)
	})
}

// hideDriver forgets what a driver called the node.
func (n *Node) hideDriver(ctx context.Context, name string) error {
	return n.changeNode(ctx, func(node *v1.Node) error {
		ids := nodeIDs(node)
		delete(ids, name)
		return setNodeIDs(node, ids)
	})
}

func nodeIDs(node *v1.Node) map[string]string {
	ids := map[string]string{}
	if text := node.Annotations[nodeIDAnnotation]; json.Unmarshal([]byte(text), &ids) != nil {
		return map[string]string{} // people may have written there
	}
	return ids
}

func setNodeIDs(node *v1.Node, ids map[string]string) error {
	if len(ids) == 0 {
		delete(node.Annotations, nodeIDAnnotation)
		return nil
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return fmt.Errorf("write IDs of the node: %w", err)
	}
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, nodeIDAnnotation, string(text))
	return nil
}

// tries is how often a change is made anew because somebody else was faster.
const tries = 5

// changeNode changes the Node, unless it is as wanted already. One that is not there gets it when it is made.
func (n *Node) changeNode(ctx context.Context, change func(*v1.Node) error) (err error) {
	for range tries {
		var there *v1.Node
		there, err = n.Get(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("get node: %w", err)
		}
		node := there.DeepCopy()
		if err := change(node); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(node, there) {
			return nil
		}
		if _, err = n.nodes.Update(ctx, node); !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("update node: %w", err)
	}
	return nil
}

// haveCSINode sees to it, once for each Node, that the node has its CSINode: programs look there for the drivers that a
// node has, also for those of a node that has none. One that is left of an earlier Node of this name becomes this one's.
func (h *heartbeat) haveCSINode(ctx context.Context) error {
	if h.csi.of == h.node.UID {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	if err := h.n.showDrivers(ctx); err != nil {
		return err
	}
	fresh := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: h.n.o.Name}}
	h.n.completeCSINode(fresh, h.node, "")
	_, err := h.n.csiNodes.Create(ctx, fresh)
	if apierrors.IsAlreadyExists(err) {
		err = h.n.updateCSINode(ctx, h.node, "")
	}
	if err != nil {
		return fmt.Errorf("create CSINode: %w", err)
	}
	h.csi.of = h.node.UID
	return nil
}

// updateCSINode brings the CSINode up to date. Drivers in it that are not registered stay, but for one that is gone: they may
// come yet.
func (n *Node) updateCSINode(ctx context.Context, node *v1.Node, gone string) (err error) {
	for range tries {
		var there *storagev1.CSINode
		there, err = n.csiNodes.Get(ctx, "", n.o.Name)
		switch {
		case apierrors.IsNotFound(err):
			there = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.o.Name}}
			n.completeCSINode(there, node, gone)
			_, err = n.csiNodes.Create(ctx, there)
		case err == nil:
			wanted := there.DeepCopy()
			n.completeCSINode(wanted, node, gone)
			if equality.Semantic.DeepEqual(there, wanted) {
				return nil
			}
			if _, err = n.csiNodes.Update(ctx, wanted); apierrors.IsInvalid(err) {
				err = n.replaceDrivers(ctx, there, err)
			}
		}
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("update CSINode: %w", err)
	}
	return nil
}

// completeCSINode makes of a CSINode what it should be.
func (n *Node) completeCSINode(c *storagev1.CSINode, node *v1.Node, gone string) {
	metav1.SetMetaDataAnnotation(&c.ObjectMeta, migratedAnnotation, migrated)
	c.OwnerReferences = ownedBy(node)
	drivers := n.drivers()
	c.Spec.Drivers = slices.DeleteFunc(c.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.Name == gone })
	for i := range c.Spec.Drivers {
		if d, ok := drivers[c.Spec.Drivers[i].Name]; ok {
			c.Spec.Drivers[i] = d.shown
			delete(drivers, d.shown.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		c.Spec.Drivers = append(c.Spec.Drivers, drivers[name].shown)
	}
}

// replaceDrivers takes those drivers out of the CSINode that it shows otherwise than they are now: an entry cannot be changed,
// only taken out and made anew, which is left to the next try. refused is why this is needed.
func (n *Node) replaceDrivers(ctx context.Context, there *storagev1.CSINode, refused error) error {
	drivers := n.drivers()
	c := there.DeepCopy()
	c.Spec.Drivers = slices.DeleteFunc(c.Spec.Drivers, func(d storagev1.CSINodeDriver) bool {
		now, ok := drivers[d.Name]
		return ok && !equality.Semantic.DeepEqual(d, now.shown)
	})
	if len(c.Spec.Drivers) == len(there.Spec.Drivers) {
		return refused
	}
	if _, err := n.csiNodes.Update(ctx, c); err != nil {
		return err
	}
	return apierrors.NewConflict(storage.CSINodes.Def.GroupResource(), c.Name, refused)
}
