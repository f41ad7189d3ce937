package cluster

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
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
	if err := plane.Ensure(ctx, t, storage.StorageClasses, standardClass()); err != nil {
		return err
	}
	if err := s.publishInfo(ctx); err != nil {
		return err
	}
	if err := s.publishSettings(ctx); err != nil {
		return err
	}
	addr := s.at.get().advertise
	endpoints := &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelSkipMirror: "true"},
		},
		Subsets: []corev1.EndpointSubset{{
			Addresses: []corev1.EndpointAddress{{IP: addr.String()}},
			Ports:     []corev1.EndpointPort{{Name: "https", Port: int32(s.o.SecurePort), Protocol: corev1.ProtocolTCP}},
		}},
	}
	if err := put(ctx, client.For(t, core.Endpoints), endpoints, func(has *corev1.Endpoints) bool {
		return equality.Semantic.DeepEqual(has.Subsets, endpoints.Subsets)
	}); err != nil {
		return err
	}
	family := discoveryv1.AddressTypeIPv4
	if addr.Is6() {
		family = discoveryv1.AddressTypeIPv6
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"},
		},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{addr.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("https"), Port: ptr.To(int32(s.o.SecurePort)), Protocol: ptr.To(corev1.ProtocolTCP)}},
	}
	return put(ctx, client.For(t, discovery.EndpointSlices), slice, func(has *discoveryv1.EndpointSlice) bool {
		return has.AddressType == slice.AddressType && equality.Semantic.DeepEqual(has.Endpoints, slice.Endpoints) && equality.Semantic.DeepEqual(has.Ports, slice.Ports)
	})
}

// publishInfo tells machines that join where the API is and what to trust. The
// controller bootstrap-signer adds to it how they can tell that it is genuine.
func (s *server) publishInfo(ctx context.Context) error {
	cluster := clientcmdapi.NewCluster()
	cluster.Server = "https://" + net.JoinHostPort(s.at.get().advertise.String(), strconv.Itoa(int(s.o.SecurePort)))
	cluster.CertificateAuthorityData = s.pki.CA.CertPEM()
	config := clientcmdapi.NewConfig()
	config.Clusters[""] = cluster
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("write cluster-info: %w", err)
	}
	info := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: "cluster-info"},
		Data:       map[string]string{"kubeconfig": string(text)},
	}
	return put(ctx, client.For(s.plane.Admin(), core.ConfigMaps), info, func(has *corev1.ConfigMap) bool {
		return has.Data["kubeconfig"] == info.Data["kubeconfig"]
	})
}

// publishSettings tells machines of the cluster what they have in common.
func (s *server) publishSettings(ctx context.Context) error {
	text, err := s.o.settings().Encode()
	if err != nil {
		return err
	}
	made := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: settings.ConfigMap}, Data: map[string]string{settings.Key: text},
	}
	return put(ctx, client.For(s.plane.Admin(), core.ConfigMaps), made, func(has *corev1.ConfigMap) bool {
		return has.Data[settings.Key] == text
	})
}

// put makes an object be as given: it is created, or replaced if it is not same.
func put[T resource.Object](ctx context.Context, c client.Client[T], obj T, same func(has T) bool) error {
	has, err := c.Get(ctx, obj.GetNamespace(), obj.GetName())
	switch {
	case apierrors.IsNotFound(err):
		_, err = c.Create(ctx, obj)
	case err == nil && !same(has):
		obj.SetResourceVersion(has.GetResourceVersion())
		_, err = c.Update(ctx, obj)
	}
	if err != nil {
		return fmt.Errorf("publish %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return nil
}
