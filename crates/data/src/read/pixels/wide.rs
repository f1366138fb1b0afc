//! Loops for the widest instructions that the processor has, whichever it was built for.

#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) fn is_wide() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn compiled_wide<T>(run: impl FnOnce() -> T) -> T {
    run()
}

/// Runs a loop that is compiled twice; what it calls must be `#[inline(always)]`.
#[inline(always)]
pub(super) fn wide<T>(run: impl FnOnce() -> T) -> T {
    #[cfg(target_arch = "x86_64")]
    if is_wide() {
        // SAFETY: the processor has these instructions.
        return unsafe { compiled_wide(run) };
    }
    run()
}
