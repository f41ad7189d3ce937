// Package read reads objects from the caches, as new as a request wants them, and from
// the store where a request wants what the caches have forgotten ([Reader]). What a
// request may see, and how it is shown, is not decided here. A3 in the code is an
// invariant of package apiserver.
package read
