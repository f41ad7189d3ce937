package pki

import (
	"bytes"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// Kubeconfig is what a client needs to reach a cluster.
type Kubeconfig struct {
	Cluster string // name of the cluster, such as "kemudi"
	Server  string // URL of the API server
	CA      []byte // the cluster's authority, in PEM
	User    string // name of the user in the file
	Pair    Pair   // the user's certificate
}

// Encode returns the file.
func (k Kubeconfig) Encode() ([]byte, error) {
	key, err := k.Pair.KeyPEM()
	if err != nil {
		return nil, err
	}
	c := clientcmdapi.NewConfig()
	c.Clusters[k.Cluster] = &clientcmdapi.Cluster{Server: k.Server, CertificateAuthorityData: k.CA}
	c.AuthInfos[k.User] = &clientcmdapi.AuthInfo{ClientCertificateData: k.Pair.CertPEM(), ClientKeyData: key}
	context := k.User + "@" + k.Cluster
	c.Contexts[context] = &clientcmdapi.Context{Cluster: k.Cluster, AuthInfo: k.User}
	c.CurrentContext = context
	data, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return data, nil
}

// WriteAdminKubeconfig writes the operator's kubeconfig to path, unless the one
// that is there is for the same server, from the same authority, and does not
// end soon.
func (p *PKI) WriteAdminKubeconfig(path, cluster, server string) error {
	if p.goodKubeconfig(path, server) {
		return nil
	}
	pair, err := p.Admin()
	if err != nil {
		return err
	}
	data, err := Kubeconfig{Cluster: cluster, Server: server, CA: p.CA.CertPEM(), User: AdminName, Pair: pair}.Encode()
	if err != nil {
		return err
	}
	return wholefile.Private(path, data)
}

func (p *PKI) goodKubeconfig(path, server string) bool {
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	c, err := clientcmd.Load(data)
	if err != nil {
		return false
	}
	context := c.Contexts[c.CurrentContext]
	if context == nil || c.Clusters[context.Cluster] == nil || c.AuthInfos[context.AuthInfo] == nil {
		return false
	}
	cluster, user := c.Clusters[context.Cluster], c.AuthInfos[context.AuthInfo]
	cert, err := parseCert(user.ClientCertificateData)
	return err == nil && cluster.Server == server && bytes.Equal(cluster.CertificateAuthorityData, p.CA.CertPEM()) &&
		p.CA.fits(cert, Subject{Name: AdminName, Organizations: []string{AdminGroup}})
}
