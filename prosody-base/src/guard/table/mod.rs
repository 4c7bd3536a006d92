//! Which fields does each message have? One file for each family of APIs.

mod admin;
mod cluster;
mod data;
mod group;

use super::schema::Api;

/// Every API in the table.
pub(super) fn all() -> impl Iterator<Item = &'static Api> {
    [data::APIS, cluster::APIS, group::APIS, admin::APIS].into_iter().flatten()
}
