package openapi

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/resource"
)

// Service serves /openapi/v2 and /openapi/v3 for a fixed set of resources. It
// may be used concurrently. Only OpenAPI 3 documents are kept once made, and only
// as text: few clients ask, and the version 2 document is large.
type Service struct {
	version string
	// Made when somebody asks, and not each time that a kind comes or goes.
	kinds func() map[schema.GroupVersion][]kind
	hash  func() string // of everything that documents are made from
	mu    struct {
		sync.Mutex
		docs map[string][]byte // JSON by path below /openapi/v3/
	}
}

// New returns the service for defs; version is the server's. on says whether a
// group-version is served.
func New(defs []*resource.Def, version string, on func(schema.GroupVersion) bool) *Service {
	s := &Service{version: version}
	s.kinds = sync.OnceValue(func() map[schema.GroupVersion][]kind {
		kinds := served(defs)
		maps.DeleteFunc(kinds, func(gv schema.GroupVersion, _ []kind) bool { return !on(gv) })
		return kinds
	})
	s.hash = sync.OnceValue(func() string { return s.hashOf(s.versions()...) })
	s.mu.docs = map[string][]byte{}
	return s
}

// hashOf tells apart documents that are made from other things.
func (s *Service) hashOf(gvs ...schema.GroupVersion) string {
	h := sha256.New()
	fmt.Fprintln(h, s.version)
	for _, gv := range gvs {
		fmt.Fprintln(h, gv)
		for _, k := range s.kinds()[gv] {
			fmt.Fprintln(h, k.gvk, len(k.subs))
			if k.live != nil {
				fmt.Fprintln(h, k.live.ID, k.def.Dynamic.ID)
			}
		}
	}
	return strings.ToUpper(hex.EncodeToString(h.Sum(nil)))
}

// hash3 is that of an OpenAPI 3 document: of the paths that are no resource's, that of all.
func (s *Service) hash3(name string) string {
	for gv := range s.kinds() {
		if base(gv) == "/"+name {
			return s.hashOf(gv)
		}
	}
	return s.hash()
}

// versions are the group-versions in a stable order.
func (s *Service) versions() []schema.GroupVersion {
	var gvs []schema.GroupVersion
	for gv := range s.kinds() {
		gvs = append(gvs, gv)
	}
	slices.SortFunc(gvs, func(a, b schema.GroupVersion) int { return strings.Compare(base(a), base(b)) })
	return gvs
}

// ServeHTTP answers /openapi/v2, /openapi/v3 and the paths below the latter.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/openapi/v2":
		s.serve2(w, r)
	case path == "/openapi/v3":
		s.index(w)
	default:
		s.serve3(w, r, strings.TrimPrefix(path, "/openapi/v3/"))
	}
}

// index lists the OpenAPI 3 documents. Their addresses hold a hash, so that
// clients may keep them for ever.
func (s *Service) index(w http.ResponseWriter) {
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]entry{}
	for _, r := range roots(s.versions()) {
		paths[r.document()] = entry{"/openapi/v3/" + r.document() + "?hash=" + s.hash3(r.document())}
	}
	w.Header().Set("Content-Type", "application/json")
	// An error means that the client has gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"paths": paths})
}

func (s *Service) serve3(w http.ResponseWriter, r *http.Request, name string) {
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if now := s.hash3(name); hash != now {
			http.Redirect(w, r, "/openapi/v3/"+name+"?hash="+now, http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", "Wed, 01 Jan 2070 00:00:00 GMT")
	}
	data, err := s.json3(name)
	if err == nil && data == nil {
		http.NotFound(w, r)
		return
	}
	s.write(w, r, document{data, err, s.hash3(name), "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", toProto(openapi_v3.ParseDocument)})
}

// json3 makes or finds a document; nil if there is none of the name.
func (s *Service) json3(name string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if data := s.mu.docs[name]; data != nil {
		return data, nil
	}
	for _, r := range roots(s.versions()) {
		if r.document() == name {
			data, err := json.Marshal(document3(s.kindsAt(name), []root{r}, s.info()))
			s.mu.docs[name] = data
			return data, err
		}
	}
	return nil, nil
}

// kindsAt are the kinds of the group-version with the path; none if there is none.
func (s *Service) kindsAt(name string) []kind {
	for gv, kinds := range s.kinds() {
		if base(gv) == "/"+name {
			return kinds
		}
	}
	return nil
}

func (s *Service) serve2(w http.ResponseWriter, r *http.Request) {
	var all []kind
	for _, gv := range s.versions() {
		all = append(all, s.kinds()[gv]...)
	}
	data, err := json.Marshal(document2(all, roots(s.versions()), s.info()))
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		z := zipped{w, gzip.NewWriter(w)}
		defer z.end()
		w = z
	}
	s.write(w, r, document{data, err, s.hash(), "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", toProto(openapi_v2.ParseDocument)})
}

// zipped compresses an answer that has a body.
type zipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (z zipped) Write(data []byte) (int, error) {
	z.Header().Set("Content-Encoding", "gzip")
	z.Header().Add("Vary", "Accept-Encoding")
	return z.z.Write(data)
}

// end writes the rest. An error means that the client has gone.
func (z zipped) end() {
	if z.Header().Get("Content-Encoding") == "gzip" {
		_ = z.z.Close()
	}
}

func (s *Service) info() *spec.Info {
	return &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: s.version}}
}

// document is a document to send: as JSON, or what went wrong with making it;
// protoType and toProto are its protobuf form.
type document struct {
	json      []byte
	err       error
	hash      string
	protoType string
	toProto   func(json []byte) ([]byte, error)
}

// toProto parses a document and encodes it again.
func toProto[D proto.Message](parse func([]byte) (D, error)) func([]byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		doc, err := parse(data)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(doc)
	}
}

// write sends a document as the client likes it best.
func (s *Service) write(w http.ResponseWriter, r *http.Request, d document) {
	mediaType, data, err := "application/json", d.json, d.err
	if err == nil && wantsProto(r.Header.Get("Accept")) {
		mediaType = d.protoType
		data, err = d.toProto(data)
	}
	if err != nil {
		http.Error(w, "make OpenAPI document: "+err.Error(), http.StatusInternalServerError)
		return
	}
	etag := `"` + d.hash + `"`
	w.Header().Set("Etag", etag)
	w.Header().Set("Vary", "Accept")
	w.Header().Set("Content-Type", mediaType)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	// An error means that the client has gone.
	_, _ = w.Write(data)
}

// wantsProto says whether the first acceptable type is protobuf.
func wantsProto(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		switch t := strings.TrimSpace(strings.SplitN(part, ";", 2)[0]); {
		case strings.HasPrefix(t, "application/com.github.proto-openapi.spec."):
			return true
		case t == "application/json", t == "*/*", t == "application/*":
			return false
		}
	}
	return false
}
