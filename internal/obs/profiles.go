package obs

import (
	"net/http"
	"net/http/pprof"
)

// ProfilesPath is where profiles are.
const ProfilesPath = "/debug/pprof"

// InstallProfiles serves profiles of the process, by upstream's paths. Nothing is measured that Go does not
// measure anyway until somebody asks for it.
func InstallProfiles(mux *http.ServeMux) {
	mux.Handle(ProfilesPath, http.RedirectHandler(ProfilesPath+"/", http.StatusFound))
	mux.HandleFunc(ProfilesPath+"/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}
