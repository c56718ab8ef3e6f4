//! The contract's tests, written once, generic over the provider.
