package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/trust"
	"github.com/kemudi/kemudi/internal/task"
)

// wardleServer is a small server of flunders. Who somebody is and what they may do it has the API say, as
// servers do that are made of upstream's library.
type wardleServer struct {
	k     kubernetes.Interface
	authn authenticator.Request
	mu    struct {
		sync.Mutex
		flunders map[string]*unstructured.Unstructured // by namespace and name
	}
}

// serveWardle serves until ctx ends.
func (b *aggregatedBed) serveWardle(ctx context.Context, cert tls.Certificate) error {
	config, err := clientcmd.BuildConfigFromFlags("", b.kubeconfig)
	if err != nil {
		return err
	}
	s := &wardleServer{}
	s.mu.flunders = map[string]*unstructured.Unstructured{}
	if s.k, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := s.learn(ctx); err != nil {
		return err
	}
	srv := &http.Server{
		Handler: s, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert},
		ReadHeaderTimeout: time.Minute,
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() }) // which ends Serve
	defer stop()
	if err := srv.ServeTLS(b.l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// learn reads whom the API believes.
func (s *wardleServer) learn(ctx context.Context) error {
	w, err := s.k.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, trust.ConfigMap, metav1.GetOptions{})
	for apierrors.IsNotFound(err) && task.Sleep(ctx, 20*time.Millisecond) == nil { // it is written soon
		w, err = s.k.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, trust.ConfigMap, metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	t, err := trust.Parse(w.Data)
	if err != nil {
		return err
	}
	if t.FrontProxy() == nil {
		return errors.New("the API believes no front proxy")
	}
	s.authn = authn.New(authn.Options{FrontProxy: t.FrontProxy(), ClientCA: trust.Pool(t.Clients), Tokens: []authenticator.Token{s}})
	return nil
}

// AuthenticateToken has the API say whose a token is.
func (s *wardleServer) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	r, err := s.k.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil || !r.Status.Authenticated {
		return nil, false, err
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: r.Status.User.Username, Groups: r.Status.User.Groups}}, true, nil
}

// may has the API say whether somebody may do what a request asks for.
func (s *wardleServer) may(ctx context.Context, u user.Info, in *request.Info) (bool, error) {
	q := authorizationv1.SubjectAccessReviewSpec{User: u.GetName(), Groups: u.GetGroups()}
	if in.Resource {
		q.ResourceAttributes = &authorizationv1.ResourceAttributes{
			Verb: in.Verb, Group: in.Group, Version: in.Version, Resource: in.Plural, Subresource: in.Sub, Namespace: in.Namespace, Name: in.Name,
		}
	} else {
		q.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: in.Verb, Path: in.Path}
	}
	r, err := s.k.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: q}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return r.Status.Allowed, nil
}

func (s *wardleServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	in := request.Parse(r)
	res, ok, err := s.authn.AuthenticateRequest(r)
	if err != nil || !ok {
		writeStatus(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	allowed, err := s.may(r.Context(), res.User, in)
	switch {
	case err != nil:
		writeStatus(w, apierrors.NewInternalError(err))
	case !allowed:
		writeStatus(w, apierrors.NewForbidden(flunders.GroupResource(), in.Name, fmt.Errorf("user %q may not", res.User.GetName())))
	case in.Path == "/apis/"+wardle.String():
		writeAnswer(w, http.StatusOK, &metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: wardle.String(),
			APIResources: []metav1.APIResource{{
				Name: "flunders", SingularName: "flunder", Namespaced: true, Kind: "Flunder", Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list"},
			}},
		})
	case in.Plural == "flunders":
		s.serveFlunders(w, r, in)
	default:
		http.NotFound(w, r)
	}
}

func (s *wardleServer) serveFlunders(w http.ResponseWriter, r *http.Request, in *request.Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := in.Namespace + "/" + in.Name
	switch in.Verb {
	case "list", "deletecollection":
		items := []any{}
		for key, f := range s.mu.flunders {
			if !strings.HasPrefix(key, in.Namespace+"/") {
				continue
			}
			items = append(items, f.Object)
			if in.Verb == "deletecollection" {
				delete(s.mu.flunders, key)
			}
		}
		writeAnswer(w, http.StatusOK, map[string]any{"apiVersion": wardle.String(), "kind": "FlunderList", "metadata": map[string]any{}, "items": items})
	case "create":
		f := &unstructured.Unstructured{}
		if err := json.NewDecoder(r.Body).Decode(&f.Object); err != nil {
			writeStatus(w, apierrors.NewBadRequest(err.Error()))
			return
		}
		key += f.GetName()
		if s.mu.flunders[key] != nil {
			writeStatus(w, apierrors.NewAlreadyExists(flunders.GroupResource(), f.GetName()))
			return
		}
		s.mu.flunders[key] = f
		writeAnswer(w, http.StatusCreated, f.Object)
	case "get", "delete":
		f := s.mu.flunders[key]
		if f == nil {
			writeStatus(w, apierrors.NewNotFound(flunders.GroupResource(), in.Name))
			return
		}
		if in.Verb == "delete" {
			delete(s.mu.flunders, key)
		}
		writeAnswer(w, http.StatusOK, f.Object)
	}
}
