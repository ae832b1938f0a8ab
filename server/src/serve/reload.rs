//! SIGHUP: what a running server takes over from its configuration, and what it can't.

use std::sync::Arc;

use tokio::sync::watch;

use crate::config::{self, Flags, Http, Loaded, SETTINGS};
use crate::gate::Gate;
use crate::listener::Certificate;
use crate::logs::LogLevel;
use crate::resp::RespServer;

/// The parts of a running server that take something over.
pub(super) struct Running<'a> {
    /// What it was started with.
    pub(super) started: &'a Loaded,
    pub(super) gate: &'a Gate,
    pub(super) http: &'a watch::Sender<Arc<Http>>,
    pub(super) certificate: Option<&'a Certificate>,
    pub(super) resp: Option<&'a RespServer>,
    pub(super) log_level: &'a LogLevel,
}

impl Running<'_> {
    /// Takes over the settings that can change, and says which can't.
    pub(super) fn reload(&self, flags: &Flags, reason: &str) {
        // A new certificate must not wait for a configuration that can be read.
        self.renew_certificates(reason);
        let fresh = match config::load(flags) {
            Ok(fresh) => fresh,
            Err(error) => {
                tracing::error!("{reason}: the old configuration stays: {error}");
                return;
            }
        };
        if let Err(error) = self.log_level.set(&fresh.settings.log_level) {
            tracing::error!("{reason}: the old log level stays: {error}");
        }
        let (started, mut bounds) = (&self.started.settings.http, fresh.settings.http.clone());
        // Places are handed out from a fixed number of permits.
        bounds.connections_max = started.connections_max;
        bounds.waiters_max = started.waiters_max;
        self.http.send_replace(Arc::new(bounds));
        if let Err(error) = self.gate.publish(Some(fresh.settings.limits())) {
            tracing::error!("{reason}: the old limits stay: {error}");
        }
        let fixed = SETTINGS.iter().zip(self.started.origins.iter().zip(&fresh.origins));
        for (setting, (old, new)) in fixed {
            if old.value != new.value && !setting.reloadable {
                tracing::warn!("{reason}: {} changed: it needs a restart", setting.key);
            }
        }
        tracing::info!("{reason}: the configuration was reloaded");
    }

    /// Reads the certificates of the ports and their keys again, from the files they began with.
    fn renew_certificates(&self, reason: &str) {
        let stays = |error| tracing::error!("{reason}: the old certificate stays: {error}");
        let settings = &self.started.settings;
        if let Some(certificate) = self.certificate {
            let renewed = config::http_tls(&settings.http);
            renewed.map_or_else(stays, |tls| tls.into_iter().for_each(|it| certificate.renew(it)));
        }
        if let Some(resp) = self.resp {
            let renewed = config::resp_tls(&settings.resp);
            renewed.map_or_else(stays, |tls| tls.into_iter().for_each(|it| resp.renew_tls(it)));
        }
    }
}
