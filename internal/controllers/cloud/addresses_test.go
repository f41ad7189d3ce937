package cloud

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudapi "k8s.io/cloud-provider/api"
)

func TestAddressesThatANodeWasToldComeFirst(t *testing.T) {
	of := func(text string) (out []corev1.NodeAddress) {
		for word := range strings.FieldsSeq(text) {
			kind, address, _ := strings.Cut(word, "=")
			out = append(out, corev1.NodeAddress{Type: corev1.NodeAddressType(kind), Address: address})
		}
		return out
	}
	for _, c := range []struct{ said, cloud, want, err string }{
		{"", "InternalIP=10.0.0.1 InternalIP=10.0.0.2", "InternalIP=10.0.0.1 InternalIP=10.0.0.2", ""},
		{"10.0.0.2", "InternalIP=10.0.0.1 InternalIP=10.0.0.2 ExternalIP=192.0.2.1", "InternalIP=10.0.0.2 ExternalIP=192.0.2.1", ""},
		{"fd00::2,10.0.0.1", "InternalIP=10.0.0.1 InternalIP=fd00::2 Hostname=h", "InternalIP=fd00::2 InternalIP=10.0.0.1 Hostname=h", ""},
		{"10.0.0.3", "InternalIP=10.0.0.1", "", "failed to get node address from cloud provider that matches ip: 10.0.0.3"},
		{"here", "InternalIP=10.0.0.1", "", `failed to parse node IP "here"`},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		if c.said != "" {
			node.Annotations[cloudapi.AnnotationAlphaProvidedIPAddr] = c.said
		}
		got, err := preferred(node, of(c.cloud))
		var words []string
		for _, a := range got {
			words = append(words, string(a.Type)+"="+a.Address)
		}
		if strings.Join(words, " ") != c.want || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("--node-ip %s of %s: got %s, %v, want %s, %s", c.said, c.cloud, words, err, c.want, c.err)
		}
	}
}
