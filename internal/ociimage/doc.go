// Package ociimage builds container images from files, without Docker and
// without a registry: a description in, an archive out that containerd, Docker
// and Podman can load.
//
// What lives here: the description of an image and its archive. What must not:
// anything that runs, stores or pulls images. The same description always
// gives the same bytes, so that an image can be told by its digest.
package ociimage
