# frozen_string_literal: true

module Memscope
  # What grew from one commit to the other, as Markdown.
  #
  # A number grew if it is larger in each measurement of head than in all of base. If something grew, both commits are
  # measured once more, and only growth that is still there is a finding.
  class Comparison
    WORDS = Words.beside(__FILE__)
    # At most this many lines, or paths, are named in a finding.
    NAMED = 3
    private_constant :WORDS, :NAMED

    # `lines` is text, nil if they are unknown. `reported` are the lines that no other finding of the path may name.
    Finding = Struct.new(:subject, :text, :lines, :reported)

    # Markdown of which the first line is the same in all comparisons of the application, by this version of Ruby. Jobs
    # that differ in these write comments of their own.
    #
    # @param about [String] the rackup file and, if one was chosen, the allocator
    def self.titled(about, text) = WORDS.fill(:title, about: about, ruby: RUBY_VERSION[/\d+\.\d+/], text: text)

    # @return [String] the Markdown if there is no comparison
    def self.said(about, name, **figures) = titled(about, "#{WORDS.fill(name, figures)}\n")

    # @return [Array<Array<Finding>>] those of the same lines, in several paths, together
    attr_reader :findings

    # @param commits [Array<Commit>] base and head
    # @param limits [Hash{Symbol => Integer}] allowed growth: boot and retained, in bytes, and objects per request
    # @raise [Commit::Failed] if head, or its requests, cannot be measured
    def initialize(commits, paths, limits)
      @commits = commits
      @limits = limits
      @rows = {}
      @findings = [*boot, *paths.flat_map { |path| requests(path) }].group_by { |one| [one.text, one.lines] }.values
    end

    # @param about [String] as in titled
    def to_markdown(about)
      [self.class.titled(about, findings.any? ? Quantity.counted(findings.size, "findings") : WORDS[:nothing]),
       *findings.map { |same| item(same) }, "", WORDS[:table], "",
       word(:heads, base: @commits.first.name, head: @commits.last.name),
       *@rows.map { |about, cells| "| #{[*about, *cells].join(' | ')} |" }, "", WORDS[:end_of_table], "",
       word(:footer, memscope: VERSION, about: about, ruby: RUBY_VERSION, allocator: @allocator), ""].join("\n")
    end

    private

    def word(name, **figures) = WORDS.fill(name, figures)

    def item(same)
      subjects = same.map(&:subject).uniq
      more = " and #{subjects.size - NAMED} more" if subjects.size > NAMED
      "- **#{subjects.first(NAMED).join(', ')}**#{more} #{[same.first.text, same.first.lines].compact.join(': ')}"
    end

    def row(subject, number, both, grew)
      @rows[[subject, WORDS[number]]] = [*both, (WORDS[:more] if grew)]
    end

    # The findings of the block in one measurement of each commit or, if there are any, in two.
    def judged(measure)
      samples = @commits.map { |commit| [measure.call(commit)] }
      return [] if yield(*samples).empty?

      @commits.zip(samples) { |commit, some| some << measure.call(commit) }
      yield(*samples)
    end

    # The least by which a number can have changed; 0 if the measurements overlap.
    def change(base, head) = head.min > base.max || head.max < base.min ? head.min - base.max : 0

    # The changes of all lines but the excluded ones.
    #
    # @param base [Array<Hash{Commit::Line => Integer}>]
    def changes(base, head, excluded = [])
      lines = (base + head).flat_map(&:keys).uniq - excluded
      lines.to_h { |line| [line, change(*[base, head].map { |some| some.map { |numbers| numbers.fetch(line, 0) } })] }
    end

    # "`app/models/order.rb:41` +16 KiB": the lines that rose most, by at least a tenth of the first. In a line that was
    # edited, the old line falls to 0 and a new one rises, so none is said to have risen by more than its file.
    def named(changes)
      files = changes.group_by { |line, _number| line.path }.transform_values { |some| some.sum(&:last) }
      rises = changes.to_h { |line, number| [line, [number, files[line.path]].min] }.max_by(NAMED, &:last)
      rises = rises.select { |_line, number| number.positive? && 10 * number >= rises.first.last }
      rises.map { |line, number| "#{place(line)} +#{yield number}" }.join(", ") if rises.any?
    end

    def place(line) = code(@commits.last.place(line))

    def code(text) = "`#{text.tr('`|', "'/")}`"

    def size(bytes) = Quantity.size(bytes)

    def boot
      judged(:boot.to_proc) do |base, head|
        both = [base, head].map { |some| some.map(&:bytes) }
        grew = change(*both) > @limits[:boot]
        row(WORDS[:boot], :in_use, both.map { |some| size(some.min) }, grew)
        places = boot_places(base, head) if grew && base.size > 1
        grew ? [Finding.new(WORDS[:boot], word(:boots, bytes: size(change(*both))), places)] : []
      end
    end

    # Files instead of lines, if a library holds the memory and no object does.
    def boot_places(base, head)
      lines = changes(*@commits.map { |commit| [commit.boot_lines] })
      files = changes(*@commits.zip([base, head]).map { |commit, some| some.map { |one| commit.boot_files(one) } })
      named(2 * lines.values.max.to_i < files.values.max.to_i ? files : lines) { |bytes| size(bytes) }
    end

    def requests(path)
      judged(->(commit) { commit.requests(path) }) do |base, head|
        failed = head.find(&:failed) and raise Commit::Failed, failed.failed

        @allocator = head.last.allocator
        subject = "GET #{code(path)}"
        found = [*kept(subject, base, head), *uncounted(subject, base, head)]
        next found if base.any?(&:failed) # the path is new

        reported = found.flat_map { |one| one.reported.to_a }
        [*found, *retained(subject, base, head, reported), *allocated(subject, base, head, reported)]
      end
    end

    # What each request leaves behind, by line, if base leaves none or less.
    def kept(subject, base, head)
      grown = head.last.check.grown.select do |one|
        change(*[base, head].map { |some| some.map { |sample| rate(sample, one) } }).positive?
      end
      growth(subject, base, head, grown.any?)
      grown.group_by { |one| one.places.first.to_s }.map { |place, some| leak(subject, place, some) }
    end

    def rate(sample, one)
      return 0 if sample.failed

      sample.check.grown.find { |other| [other.layer, other.name] == [one.layer, one.name] }&.per_iteration.to_i
    end

    def leak(subject, place, grown)
      held = grown.filter_map(&:held_by).first
      text = word(:keeps, what: grown.map { |one| amount(one) }.join(", "),
                          held: held && word(:held, path: code(held.join(" → "))))
      lines = grown.flat_map(&:places).map { |one| @commits.last.line(one.path, one.lineno) }
      Finding.new(subject, text, (code(@commits.last.relative(place)) unless place.empty?), lines)
    end

    def amount(grown) = "+#{grown.per_iteration} #{grown.name ? code(grown.name) : WORDS[grown.layer]}"

    # Growth of blocks that were there before, of which a check has no line.
    def uncounted(subject, base, head)
      bytes = [base, head].map do |some|
        some.map { |sample| sample.failed ? 0 : sample.check.uncounted_bytes.to_i * sample.check.judged_iterations }
      end
      return [] unless change(*bytes) > @limits[:retained]

      growth(subject, base, head, true)
      [Finding.new(subject, word(:grows, bytes: size(head.last.check.uncounted_bytes)))]
    end

    def growth(subject, base, head, grew)
      row(subject, :growth, [base, head].map { |some| some.last.failed || some.last.check.verdict }, grew)
    end

    def retained(subject, base, head, reported)
      both = [base, head].map { |some| some.map(&:retained) }
      changes = changes(*both, reported)
      bytes = changes.values.sum
      grew = bytes > @limits[:retained]
      row(subject, :retained, both.map { |some| size(some.first.values.sum) }, grew)
      text = word(:retains, bytes: size(bytes), requests: head.last.round)
      grew ? [Finding.new(subject, text, named(changes) { |number| size(number) })] : []
    end

    def allocated(subject, base, head, reported)
      both = [base, head].map { |some| some.flat_map(&:rounds) }
      changes = changes(*both, reported)
      objects = per_request(changes.values.sum, head)
      grew = objects > @limits[:objects]
      row(subject, :allocated, both.map { |some| per_request(some.map { |one| one.values.sum }.min, head) }, grew)
      text = word(:allocates, objects: Quantity.counted(objects, "more objects"))
      grew ? [Finding.new(subject, text, named(changes) { |number| per_request(number, head) })] : []
    end

    def per_request(number, samples) = number.fdiv(samples.last.round).round
  end
end
