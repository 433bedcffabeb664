# frozen_string_literal: true

require_relative "site"

# SITE_URL=https://example.org/memscope is where it will be; without, it is for the root of any host.
desc "Build the documentation's site in tmp/site/pages, with npm's VitePress"
task :site do
  site = Site.new(url: ENV.fetch("SITE_URL", nil))
  abort "Links that lead nowhere:\n#{site.broken.join("\n")}" unless site.broken.empty?

  site.lay_out
  Dir.chdir(Site::BUILD) do
    installed = uptodate?("node_modules/.package-lock.json", ["package.json"])
    sh "npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--silent" unless installed
    sh "npx", "--no-install", "vitepress", "build", "source"
  end
  site.complete
  abort "Links of the built pages that lead nowhere:\n#{site.dead.join("\n")}" unless site.dead.empty?
  abort "Pages that may load from elsewhere:\n#{site.foreign.join("\n")}" unless site.foreign.empty?
end
