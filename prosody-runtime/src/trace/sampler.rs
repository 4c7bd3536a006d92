//! Is a trace recorded? *Pure.*

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sampler {
    /// Whoever started the trace has decided; `root` decides what starts here.
    pub(crate) by_parent: bool,
    pub(crate) root: Root,
}

/// What decides of a trace that starts here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    On,
    Off,
    /// Traces whose random part is below this.
    Below(u64),
}

impl Root {
    /// A share from 0 to 1. Two services with the same share record the same traces.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a number"
    )]
    pub(crate) fn share(share: f64) -> Root {
        if share >= 1.0 { Root::On } else { Root::Below((share * (1u64 << 63) as f64) as u64) }
    }
}

impl Sampler {
    /// `parent` is what the parent's trace says, if there is one.
    pub(crate) fn samples(self, parent: Option<bool>, trace_id: [u8; 16]) -> bool {
        match (parent, self.root) {
            (Some(sampled), _) if self.by_parent => sampled,
            (_, Root::On) => true,
            (_, Root::Off) => false,
            (_, Root::Below(bound)) => {
                let [.., a, b, c, d, e, f, g, h] = trace_id;
                u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < bound
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parent_decides_where_it_is_asked_and_a_share_is_one() {
        let (on, off) =
            (Sampler { by_parent: true, root: Root::On }, Sampler { by_parent: true, root: Root::Off });
        let id = [9; 16];
        assert!(on.samples(None, id) && on.samples(Some(true), id) && !on.samples(Some(false), id));
        assert!(!off.samples(None, id) && off.samples(Some(true), id) && !off.samples(Some(false), id));
        let alone = Sampler { by_parent: false, root: Root::On };
        assert!(alone.samples(Some(false), id));
        let rng = prosody_base::Rng::seeded(7);
        for share in [0.0, 0.1, 0.5, 1.0] {
            let sampler = Sampler { by_parent: true, root: Root::share(share) };
            let id = || (u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64())).to_be_bytes();
            let sampled = (0..10_000).filter(|_| sampler.samples(None, id())).count();
            assert!((sampled as f64 - share * 10_000.0).abs() < 300.0, "{share}: {sampled}");
        }
    }
}
