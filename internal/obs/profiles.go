package obs

import (
	"net/http"
	"net/http/pprof"
)

// InstallProfiles serves profiles of the process, by upstream's paths. Nothing is measured that Go does not
// measure anyway until somebody asks for it.
func InstallProfiles(mux *http.ServeMux) {
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}
