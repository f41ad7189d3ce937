package cluster

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/servers"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// publish makes the API reachable within the cluster: the service "kubernetes"
// and its endpoints. It also gives the cluster its default storage class.
func (s *server) publish(ctx context.Context) error {
	t := s.plane.Admin()
	labels := map[string]string{"component": "apiserver", "provider": "kubernetes"}
	if err := plane.Ensure(ctx, t, core.Services, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: labels},
		Spec: corev1.ServiceSpec{
			ClusterIP: s.o.Network.APIServiceIP().String(),
			Ports:     []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromInt32(int32(s.o.SecurePort)), Protocol: corev1.ProtocolTCP}},
		},
	}); err != nil {
		return err
	}
	if s.o.alone == nil { // else whose cluster it is sees to that
		if err := plane.Ensure(ctx, t, storage.StorageClasses, standardClass()); err != nil {
			return err
		}
		if err := s.publishSettings(ctx); err != nil {
			return err
		}
	}
	return s.publishServers(ctx)
}

// own is where others reach this server's API.
func (s *server) own() netip.AddrPort {
	return netip.AddrPortFrom(s.at.get().advertise, s.o.SecurePort)
}

// living are where the APIs of all servers are that live, in order. This one does, whatever is
// known of it.
func (s *server) living() []netip.AddrPort {
	list := []netip.AddrPort{s.own()}
	select {
	case <-s.plane.Shared():
		list = append(list, servers.Living(s.plane.Admin().Cache(coordination.Leases.Def, ""))...)
		slices.SortFunc(list, netip.AddrPort.Compare)
	default:
	}
	return slices.Compact(list)
}

// attend keeps what is published of the servers true as they come and go, until ctx ends. Who is
// alone has nothing to attend to.
func (s *server) attend(ctx context.Context) error {
	select {
	case <-s.plane.Shared():
	case <-ctx.Done():
		return nil
	}
	var published []netip.AddrPort
	records := client.Cached(s.plane.Admin(), coordination.Leases, "")
	return records.Each(ctx, cache.FollowOptions{Namespace: metav1.NamespaceSystem}, func([]cache.Delta) error {
		wait := task.Backoff{Initial: 20 * time.Millisecond, Max: time.Second, Jitter: 0.5}
		for {
			now := s.living()
			if slices.Equal(now, published) {
				return nil
			}
			err := s.publishServers(ctx)
			if err == nil {
				published = now
				continue
			}
			if ctx.Err() == nil {
				s.o.Logger.Warn("tell the cluster which servers live", "err", err)
			}
			if task.Sleep(ctx, wait.Next()) != nil {
				return nil
			}
		}
	})
}

// kept are the objects by which pods find the API, and machines that join.
type kept struct {
	def             *resource.Def
	namespace, name string
}

// keep publishes again what somebody has deleted of it, until ctx ends. What somebody changes in it stays so until
// servers come or go: two servers that see different ones for a moment would otherwise answer each other's writes.
func (s *server) keep(ctx context.Context) error {
	all := []kept{
		{core.Services.Def, metav1.NamespaceDefault, "kubernetes"},
		{core.Endpoints.Def, metav1.NamespaceDefault, "kubernetes"},
		{discovery.EndpointSlices.Def, metav1.NamespaceDefault, "kubernetes"},
	}
	if s.o.alone == nil {
		all = append(all, kept{core.ConfigMaps.Def, metav1.NamespacePublic, "cluster-info"}, kept{core.ConfigMaps.Def, metav1.NamespaceSystem, settings.ConfigMap})
	}
	g := task.NewGroup(ctx)
	for _, k := range all {
		c := s.plane.Admin().Cache(k.def, "")
		g.Go("keep "+k.name, func(ctx context.Context) error {
			return c.Each(ctx, cache.FollowOptions{Namespace: k.namespace}, func([]cache.Delta) error {
				wait := task.Backoff{Initial: 20 * time.Millisecond, Max: 10 * time.Second, Jitter: 0.5}
				for c.Get(cache.Key(k.namespace, k.name)) == nil {
					err := s.publish(ctx)
					if err == nil {
						return nil
					}
					if ctx.Err() == nil {
						s.o.Logger.Warn("make the API known within the cluster again", "err", err)
					}
					if task.Sleep(ctx, wait.Next()) != nil {
						return nil
					}
				}
				return nil
			})
		})
	}
	return g.Wait()
}

// publishServers says where the servers are that live.
func (s *server) publishServers(ctx context.Context) error {
	s.telling.Lock()
	defer s.telling.Unlock()
	list := s.living()
	if s.o.alone == nil {
		if err := s.publishInfo(ctx, list); err != nil {
			return err
		}
	}
	t := s.plane.Admin()
	endpoints := endpointsOf(list)
	if err := put(ctx, client.For(t, core.Endpoints), endpoints, func(has *corev1.Endpoints) bool {
		return equality.Semantic.DeepEqual(has.Subsets, endpoints.Subsets)
	}); err != nil {
		return err
	}
	slice := sliceOf(list)
	return put(ctx, client.For(t, discovery.EndpointSlices), slice, func(has *discoveryv1.EndpointSlice) bool {
		return has.AddressType == slice.AddressType && equality.Semantic.DeepEqual(has.Endpoints, slice.Endpoints) && equality.Semantic.DeepEqual(has.Ports, slice.Ports)
	})
}

// endpointsOf are the endpoints of the service "kubernetes", those of one port together.
func endpointsOf(list []netip.AddrPort) *corev1.Endpoints {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"},
	}}
	for _, at := range list {
		port := []corev1.EndpointPort{{Name: "https", Port: int32(at.Port()), Protocol: corev1.ProtocolTCP}}
		i := slices.IndexFunc(e.Subsets, func(s corev1.EndpointSubset) bool { return s.Ports[0] == port[0] })
		if i < 0 {
			i = len(e.Subsets)
			e.Subsets = append(e.Subsets, corev1.EndpointSubset{Ports: port})
		}
		e.Subsets[i].Addresses = append(e.Subsets[i].Addresses, corev1.EndpointAddress{IP: at.Addr().String()})
	}
	return e
}

// sliceOf is the endpoint slice of the service "kubernetes", with the servers of the first one's family
// and port: a slice has one of each, and servers differ in neither unless somebody wants that.
func sliceOf(list []netip.AddrPort) *discoveryv1.EndpointSlice {
	first := list[0]
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(first.Port())), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	if first.Addr().Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, at := range list {
		if at.Port() == first.Port() && at.Addr().Is6() == first.Addr().Is6() {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{at.Addr().String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)},
			})
		}
	}
	return slice
}

// publishInfo tells machines that join where the API is and what to trust. The
// controller bootstrap-signer adds to it how they can tell that it is genuine. Of several servers any one
// that lives will do: what is there stays.
func (s *server) publishInfo(ctx context.Context, living []netip.AddrPort) error {
	text, err := s.info(living[0])
	if err != nil {
		return err
	}
	info := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": text},
	}
	return put(ctx, client.For(s.plane.Admin(), core.ConfigMaps), info, func(has *corev1.ConfigMap) bool {
		return slices.ContainsFunc(living, func(at netip.AddrPort) bool {
			text, err := s.info(at)
			return err == nil && has.Data["kubeconfig"] == text
		})
	})
}

// info is the text of cluster-info that names a server.
func (s *server) info(at netip.AddrPort) (string, error) {
	cluster := clientcmdapi.NewCluster()
	cluster.Server = "https://" + at.String()
	cluster.CertificateAuthorityData = s.pki.CA.CertPEM()
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = cluster
	text, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("write cluster-info: %w", err)
	}
	return string(text), nil
}

// publishSettings tells machines of the cluster what they have in common. Where other servers
// live they have said it already: a server that has been told something else does not start.
func (s *server) publishSettings(ctx context.Context) error {
	own := s.o.settings()
	text, err := own.Encode()
	if err != nil {
		return err
	}
	made := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: settings.ConfigMap}, Data: map[string]string{settings.Key: text},
	}
	others := slices.ContainsFunc(s.living(), func(at netip.AddrPort) bool { return at != s.own() })
	var differs error
	err = put(ctx, client.For(s.plane.Admin(), core.ConfigMaps), made, func(has *corev1.ConfigMap) bool {
		if others {
			differs = agree(has, own)
		}
		return others || has.Data[settings.Key] == text
	})
	return cmp.Or(err, differs)
}

// agree refuses settings that are not those that the servers of the cluster have published.
func agree(has *corev1.ConfigMap, own settings.Settings) error {
	cluster, err := settings.Parse(has.Data[settings.Key])
	if err != nil {
		return err
	}
	return cluster.Check(own)
}

// put makes an object be as given: it is created, or replaced if it is not same. Where another
// server is faster it looks again.
func put[T resource.Object](ctx context.Context, c client.Client[T], obj T, same func(has T) bool) error {
	for {
		has, err := c.Get(ctx, obj.GetNamespace(), obj.GetName())
		switch {
		case apierrors.IsNotFound(err):
			obj.SetResourceVersion("")
			_, err = c.Create(ctx, obj.DeepCopyObject().(T))
		case err == nil && !same(has):
			obj.SetResourceVersion(has.GetResourceVersion())
			_, err = c.Update(ctx, obj.DeepCopyObject().(T))
		}
		switch {
		case err == nil:
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
			return fmt.Errorf("publish %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
		}
	}
}
