//! A file's content in shared pages: a disk is cloned at every operation of a campaign.

use std::sync::Arc;

use super::SECTOR_BYTES;

const PAGE_BYTES: usize = 4096;
const SECTORS_PER_PAGE: u64 = (PAGE_BYTES / SECTOR_BYTES) as u64;

type Page = [u8; PAGE_BYTES];

/// Pages; `None` is all zero.
#[derive(Clone, Default)]
pub(super) struct Pages {
    pages: Vec<Option<Arc<Page>>>,
    bytes: u64,
}

impl PartialEq for Pages {
    fn eq(&self, other: &Self) -> bool {
        const ZEROS: Page = [0; PAGE_BYTES];
        let same = |(one, two): (&Option<Arc<Page>>, &Option<Arc<Page>>)| match (one, two) {
            (Some(one), Some(two)) => Arc::ptr_eq(one, two) || one == two,
            (None, None) => true,
            (Some(page), None) | (None, Some(page)) => **page == ZEROS,
        };
        self.bytes == other.bytes && self.pages.iter().zip(&other.pages).all(same)
    }
}

fn index(offset: u64) -> (usize, usize) {
    let offset = usize::try_from(offset).expect("a simulated file is small");
    (offset / PAGE_BYTES, offset % PAGE_BYTES)
}

impl Pages {
    pub(super) fn zeroed(bytes: u64) -> Self {
        Self { pages: vec![None; index(bytes + PAGE_BYTES as u64 - 1).0], bytes }
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut pages = Self::zeroed(bytes.len() as u64);
        for (page, bytes) in pages.pages.iter_mut().zip(bytes.chunks(PAGE_BYTES)) {
            let mut content = [0; PAGE_BYTES];
            content[..bytes.len()].copy_from_slice(bytes);
            *page = Some(Arc::new(content));
        }
        pages
    }

    pub(super) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; index(self.bytes).0 * PAGE_BYTES + index(self.bytes).1];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Grows to `bytes`, with zeros.
    pub(super) fn extend(&mut self, bytes: u64) {
        self.bytes = self.bytes.max(bytes);
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes
    }

    fn page_mut(&mut self, page: usize) -> &mut Page {
        if self.pages.len() <= page {
            self.pages.resize(page + 1, None);
        }
        Arc::make_mut(self.pages[page].get_or_insert_with(|| Arc::new([0; PAGE_BYTES])))
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let left = self.bytes.saturating_sub(offset);
        let bytes = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut done = 0;
        while done < bytes {
            let (page, start) = index(offset + done as u64);
            let piece = (PAGE_BYTES - start).min(bytes - done);
            match self.pages.get(page).and_then(Option::as_deref) {
                Some(content) => {
                    buffer[done..done + piece].copy_from_slice(&content[start..start + piece]);
                }
                None => buffer[done..done + piece].fill(0),
            }
            done += piece;
        }
        bytes
    }

    /// Writes, and returns the sectors touched that now differ from `durable`.
    pub(super) fn write(&mut self, bytes: &[u8], offset: u64, durable: &Self) -> Vec<u64> {
        let mut done = 0;
        while done < bytes.len() {
            let (page, start) = index(offset + done as u64);
            let piece = (PAGE_BYTES - start).min(bytes.len() - done);
            self.page_mut(page)[start..start + piece].copy_from_slice(&bytes[done..done + piece]);
            done += piece;
        }
        let end = offset + bytes.len() as u64;
        self.bytes = self.bytes.max(end);
        let sector = SECTOR_BYTES as u64;
        (offset / sector..end.div_ceil(sector))
            .filter(|sector| self.sector(*sector) != durable.sector(*sector))
            .collect()
    }

    fn sector(&self, sector: u64) -> &[u8] {
        const ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
        let (page, start) = index(sector * SECTOR_BYTES as u64);
        match self.pages.get(page).and_then(Option::as_deref) {
            Some(content) => &content[start..start + SECTOR_BYTES],
            None => &ZEROS,
        }
    }

    pub(super) fn copy_sector(&mut self, from: &Self, sector: u64) {
        let mut content = [0; SECTOR_BYTES];
        content.copy_from_slice(from.sector(sector));
        self.sector_mut(sector).copy_from_slice(&content);
        self.bytes = self.bytes.max(from.bytes);
    }

    pub(super) fn garble_sector(&mut self, sector: u64) {
        for (index, byte) in (0u8..=255).cycle().zip(self.sector_mut(sector)) {
            *byte = 0xA5 ^ index.wrapping_mul(31);
        }
    }

    fn sector_mut(&mut self, sector: u64) -> &mut [u8] {
        let start = index(sector % SECTORS_PER_PAGE * SECTOR_BYTES as u64).1;
        let page = index(sector * SECTOR_BYTES as u64).0;
        &mut self.page_mut(page)[start..start + SECTOR_BYTES]
    }
}
