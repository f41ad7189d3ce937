package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
)

// startPatience is how long etcd may take to be ready.
const startPatience = time.Minute

// kubeconfigName is the file in the data directory with the access to the API.
const kubeconfigName = "admin.kubeconfig"

// serve runs etcd and the server until ctx ends.
func serve(ctx context.Context, dir string, port int) (err error) {
	if dir == "" {
		return errors.New("a directory is missing: --data-dir")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	client, stop, err := startEtcd(ctx, filepath.Join(dir, "etcd"), port+1)
	if err != nil {
		return err
	}
	defer stop()
	s, err := newServer(dir, port, client)
	if err != nil {
		return err
	}
	if err := s.generic.AddPostStartHook("first-objects", func(hook genericserver.PostStartHookContext) error { return s.first(hook) }); err != nil {
		return fmt.Errorf("add hook: %w", err)
	}
	return s.generic.PrepareRun().RunWithContext(ctx)
}

// startEtcd runs a member whose client port is the given one.
func startEtcd(ctx context.Context, dir string, port int) (client string, stop func(), err error) {
	at := func(port int) url.URL {
		return url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", fmt.Sprint(port))}
	}
	c := embed.NewConfig()
	c.Dir, c.LogLevel = dir, "error"
	c.ListenClientUrls = []url.URL{at(port)}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ListenPeerUrls = []url.URL{at(port + 1)}
	c.AdvertisePeerUrls = c.ListenPeerUrls
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	e, err := embed.StartEtcd(c)
	if err != nil {
		return "", nil, fmt.Errorf("start etcd: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	select {
	case <-e.Server.ReadyNotify():
		return c.ListenClientUrls[0].String(), e.Close, nil
	case err = <-e.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	e.Close()
	return "", nil, fmt.Errorf("start etcd: %w", err)
}

// server is the library's server with our resources.
type server struct {
	generic *genericserver.GenericAPIServer
	core    map[string]rest.Storage
}

// newServer makes the server, and the kubeconfig with which it is reached.
func newServer(dir string, port int, etcd string) (*server, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	config := genericserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.SkipOpenAPIInstallation = true
	if err := secure(config, dir, port); err != nil {
		return nil, err
	}
	codec, versioner, err := storageCodec(codecs)
	if err != nil {
		return nil, err
	}
	backend := storagebackend.NewDefaultConfig("/registry", codec)
	backend.Transport.ServerList = []string{etcd}
	backend.EncodeVersioner = versioner
	if err := options.NewEtcdOptions(backend).ApplyTo(config); err != nil {
		return nil, fmt.Errorf("set up storage: %w", err)
	}
	generic, err := config.Complete(nil).New("baseline", genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make server: %w", err)
	}
	s := &server{generic: generic}
	return s, s.install(scheme, codecs, config)
}

// install serves the resources. It does what the library's own function does,
// which would ask for OpenAPI definitions that the API types come without; those
// of the client library take their place where objects are applied.
func (s *server) install(scheme *runtime.Scheme, codecs serializer.CodecFactory, config *genericserver.Config) error {
	resources, err := registry{scheme, config.RESTOptionsGetter}.resources()
	if err != nil {
		return err
	}
	types := applyconfigurations.NewTypeConverter(scheme)
	for gv, stores := range resources {
		served := map[string][]string{}
		for name := range stores {
			served[name] = []string{gv.String()}
		}
		root := genericserver.APIGroupPrefix
		if gv.Group == "" {
			root = genericserver.DefaultLegacyAPIPrefix
			s.core = stores
		}
		version := schema.GroupVersion{Version: "v1"} // of options
		group := &endpoints.APIGroupVersion{
			Storage: stores, Root: root, GroupVersion: gv, AllServedVersionsByResource: served, OptionsExternalVersion: &version,
			Serializer: codecs, ParameterCodec: runtime.NewParameterCodec(scheme), Typer: scheme, Creater: scheme, Convertor: scheme,
			ConvertabilityChecker: scheme, Defaulter: scheme, Namer: runtime.Namer(meta.NewAccessor()), UnsafeConvertor: runtime.UnsafeObjectConvertor(scheme),
			TypeConverter: types, EquivalentResourceRegistry: s.generic.EquivalentResourceRegistry, Authorizer: config.Authorization.Authorizer,
			MinRequestTimeout: time.Duration(config.MinRequestTimeout) * time.Second, MaxRequestBodyBytes: config.MaxRequestBodyBytes,
		}
		if _, _, err := group.InstallREST(s.generic.Handler.GoRestfulContainer); err != nil {
			return fmt.Errorf("serve %s: %w", gv, err)
		}
	}
	return nil
}

// secure gives the server its port, its certificate and its one user.
func secure(config *genericserver.Config, dir string, port int) error {
	const address = "127.0.0.1"
	cert, key, err := certutil.GenerateSelfSignedCertKey(address, []net.IP{net.ParseIP(address)}, nil)
	if err != nil {
		return fmt.Errorf("make certificate: %w", err)
	}
	certFile, keyFile := filepath.Join(dir, "server.crt"), filepath.Join(dir, "server.key")
	for file, data := range map[string][]byte{certFile: cert, keyFile: key} {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return fmt.Errorf("write certificate: %w", err)
		}
	}
	serving := options.NewSecureServingOptions()
	serving.BindAddress, serving.BindPort = net.ParseIP(address), port
	serving.ServerCert.CertKey = options.CertKey{CertFile: certFile, KeyFile: keyFile}
	if err := serving.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	token := rand.Text()
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}
	config.Authentication = genericserver.AuthenticationInfo{Authenticator: authenticator.Request(bearertoken.New(tokenfile.New(map[string]*user.DefaultInfo{token: admin})))}
	config.Authorization.Authorizer = authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)
	access := clientcmdapi.NewConfig()
	access.Clusters["baseline"] = &clientcmdapi.Cluster{Server: fmt.Sprintf("https://%s:%d", address, port), CertificateAuthorityData: cert}
	access.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: token}
	access.Contexts["baseline"] = &clientcmdapi.Context{Cluster: "baseline", AuthInfo: "admin"}
	access.CurrentContext = "baseline"
	if err := clientcmd.WriteToFile(*access, filepath.Join(dir, kubeconfigName)); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}

// first makes the namespace that is there from the beginning, and reports that
// the server is ready.
func (s *server) first(ctx context.Context) error {
	namespaces, ok := s.core["namespaces"].(rest.Creater)
	if !ok {
		return errors.New("namespaces cannot be created")
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}
	if _, err := namespaces.Create(request.WithNamespace(ctx, metav1.NamespaceNone), ns, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil && !kerrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace: %w", err)
	}
	return notifyReady()
}
