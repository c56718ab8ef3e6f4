//! The real-RDMA provider. Its place is here; the provider itself is not part of this release.
